"""What a critic is fitted to, and the rows that bootstrap truncated episodes."""

from typing import NamedTuple

import numpy as np

from agentrl.graph import StepGraph, Tokens, append_rows, path_lengths


class Targets(NamedTuple):
    """What a critic is fitted to, over the token table: `returns` [S, H] (NaN where there is none), the values
    [S, H] before the update, and the share [S, H] of each in the loss (they sum to 1)."""

    returns: np.ndarray
    old: np.ndarray
    share: np.ndarray


def with_tails(graph: StepGraph, rows: np.ndarray) -> tuple[Tokens, np.ndarray, np.ndarray]:
    """The token table with one more row for the tail of each truncated episode among `rows`.

    Such a row continues its episode's last step (or is a prompt of its own, where the context policy writes one every
    turn) and ends in a place-holder marked as sampled, so that a value can be read before it.

    Returns:
        The table, the numbers of the new rows, and the rows they follow.
    """
    assert graph.tokens is not None
    tokens, tails = graph.tokens, graph.tails
    order = np.unique(graph.episode, return_index=True)[1]  # [E] first row of each episode
    number = np.argsort(np.argsort(order))[np.unique(graph.episode, return_inverse=True)[1]]  # [N] place of its episode
    cut = rows[(graph.last & graph.truncated)[rows]]
    if not len(tails) or not len(cut):
        return tokens, np.zeros(0, np.int64), np.zeros(0, np.int64)
    offsets, flat = tails["tail_offsets"], tails["tail_ids"]
    continues = tails.get("tail_continues", np.ones(len(offsets) - 1, bool))
    cut = cut[(np.diff(offsets) > 0)[number[cut]]]
    pieces = [np.append(flat[offsets[e] : offsets[e + 1]], 0) for e in number[cut]]
    linked = continues[number[cut]].astype(bool)
    longer = append_rows(
        tokens,
        pieces,
        [np.arange(len(piece)) == len(piece) - 1 for piece in pieces],
        np.where(linked, cut, -1),
        np.where(linked, path_lengths(tokens)[cut], 0),
    )
    return longer, len(graph) + np.arange(len(cut)), cut
