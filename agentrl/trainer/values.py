"""The returns that a critic learns, and the rows from which truncated episodes are bootstrapped."""

from typing import NamedTuple

import numpy as np

from agentrl.graph import StepGraph, Tokens, append_rows, path_lengths, tail_continues


class Targets(NamedTuple):
    """The targets that a critic learns, over the S tokens of the token table and the H heads of the critic.

    Attributes:
        returns: [S, H] returns that the values should approach, 0 where there is no return.
        old: [S, H] values before the update, 0 where there is no value.
        share: [S, H] share of each entry in the loss, 0 where there is no return or no value. The shares of each head
            sum to 1 / H, or to 0 if the head has no target.
    """

    returns: np.ndarray
    old: np.ndarray
    share: np.ndarray


def with_tails(graph: StepGraph, rows: np.ndarray) -> tuple[Tokens, np.ndarray, np.ndarray]:
    """The token table with one more row for each truncated episode that has a tail and whose last row is in `rows`.

    The new row holds the tail, which is the prompt with the episode's final observation. If the context continued the
    previous prompt, the new row continues the last step of the episode. If the context wrote a fresh prompt, the new
    row begins a separate path. The new row ends in a place-holder token that is marked as sampled, so that a value can
    be read before this token.

    Returns:
        The table; [M] the new rows; and [M] the last row of each new row's episode.
    """
    assert graph.tokens is not None
    tokens, tails = graph.tokens, graph.tails
    order = np.unique(graph.episode, return_index=True)[1]  # [E] first row of each episode
    number = np.argsort(np.argsort(order))[np.unique(graph.episode, return_inverse=True)[1]]  # [N] episode index
    ends = rows[(graph.last & graph.truncated)[rows]]
    if not len(tails) or not len(ends):
        return tokens, np.zeros(0, np.int64), np.zeros(0, np.int64)
    offsets, flat = tails["tail_offsets"], tails["tail_ids"]
    continues = tail_continues(tails)
    ends = ends[(np.diff(offsets) > 0)[number[ends]]]
    pieces = [np.append(flat[offsets[e] : offsets[e + 1]], 0) for e in number[ends]]
    linked = continues[number[ends]].astype(bool)
    longer = append_rows(
        tokens,
        pieces,
        [np.arange(len(piece)) == len(piece) - 1 for piece in pieces],
        np.where(linked, ends, -1),
        np.where(linked, path_lengths(tokens)[ends], 0),
    )
    return longer, len(graph) + np.arange(len(ends)), ends
