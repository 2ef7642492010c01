"""The sampled tokens of a graph's steps as arrays, for credit per token.

Letters: N steps, T sampled tokens, S tokens of the token table.
"""

from typing import NamedTuple

import numpy as np

from agentrl.credit import Credit, where
from agentrl.graph import StepGraph, broadcast, mean


class TokenRows(NamedTuple):
    """The sampled tokens in order.

    Attributes:
        position: [T] index of the token in the token table.
        row: [T] row of the token's step.
        first, last: [N] the step's first and last token, in 0..T-1.
        value: [T] the critic's value before each token.
    """

    position: np.ndarray
    row: np.ndarray
    first: np.ndarray
    last: np.ndarray
    value: np.ndarray


def token_rows(graph: StepGraph, method: str) -> TokenRows:
    """The sampled tokens of a graph, with the critic's values.

    Raises:
        ValueError: there is no token table with values, a step has no token, or a token has no value.
    """
    value = graph.token_column("token_value", method)  # [S]
    assert graph.tokens is not None
    index = np.flatnonzero(graph.tokens.sampled)  # [T]
    row = broadcast(np.arange(len(graph)), graph.tokens.offsets)[index]  # [T]
    counts = np.bincount(row, minlength=len(graph))  # [N]
    blank = np.bincount(row, np.isnan(value[index]), len(graph)) > 0  # [N]
    for n, word in ((counts == 0, "no token"), (blank, "no value")):
        if n.any():
            raise ValueError(
                f"{where(graph, int(np.argmax(n)))}: token_value: {method} needs a value for every response "
                f"token, and here there is {word}"
            )
    end = np.cumsum(counts)  # [N]
    return TokenRows(index, row, end - counts, end - 1, value[index])


def token_credit(graph: StepGraph, tokens: TokenRows, advantage: np.ndarray, returns: np.ndarray) -> Credit:
    """Credit from [T] arrays: 0 on prompt tokens; a step's advantage is the mean over its tokens."""
    size = len(graph.token_column("token_value"))
    spread = {name: np.zeros(size) for name in ("token_advantage", "token_return")}  # [S] each
    spread["token_advantage"][tokens.position] = advantage
    spread["token_return"][tokens.position] = returns
    average = mean(advantage, tokens.row)[tokens.first] if len(tokens.row) else np.zeros(0)  # [N]
    return Credit.of(average, token_advantage=spread["token_advantage"], token_parts=spread)
