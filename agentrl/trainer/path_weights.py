"""How a loss counts each row: once for itself, or once per path through it.

A shared step of a tree is trained once, with the sum of the credit of its paths. If a ratio or a mean of the loss spans
a whole path, this sum is not enough. Each root-to-leaf path then has a copy of the step's row, with the credit of this
path. Log-probabilities are copied after the forward pass over the tree, so that copies of a row cost no further forward
pass.

Letters: N steps, S tokens of the graph, K targets of a micro-batch, C copies, X targets of all copies.
"""

from typing import NamedTuple

import numpy as np

from agentrl.credit import Credit
from agentrl.graph import StepGraph, decisions, levels, paths, select, token_rows
from agentrl.loss import Aggregation, SequenceUnit


class Copies(NamedTuple):
    """Copies of rows, as a loss counts them.

    Attributes:
        row: [C] int64, the row that is copied.
        path: [C] int64, the sequence of the copy: the episode (`of_rows`) or the number of the path (`of_paths`).
        positive, negative: [C] float64, credit of the copy, times the row's factor in the loss (`use`).
        weight: [C] float64, how often the copy counts, times the row's factor in the loss (`use`).
    """

    row: np.ndarray
    path: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    weight: np.ndarray

    def take(self, which: np.ndarray) -> "Copies":
        """The copies with the indices `which`."""
        return Copies(*(x[which] for x in self))


class Spread(NamedTuple):
    """The targets of all copies: `target` [X] is an index into the targets [K], `copy` [X] into the copies [C]."""

    target: np.ndarray
    copy: np.ndarray


def of_rows(graph: StepGraph, credit: Credit, use: np.ndarray) -> Copies:
    """One copy per row. `use` [N] is the factor of each row in the loss; 0 leaves the row out."""
    return Copies(
        np.arange(len(graph)),
        graph.episode,
        use * credit.positive,
        use * credit.negative,
        use * credit.weight * credit.assigned,
    )


def of_paths(graph: StepGraph, credit: Credit, use: np.ndarray) -> Copies:
    """One copy of a row per root-to-leaf path through it, with the credit of this path. `use` [N] as in `of_rows`.

    If the credit method gives credit per row and not per path, a row's credit is divided equally among its paths.
    """
    if credit.on_paths is not None:
        on, positive, negative, weight = credit.on_paths
        row, leaf = on
    else:
        rows = np.flatnonzero(credit.assigned)
        on = paths(select(graph, rows))
        row, leaf = rows[on.row], on.leaf  # [C]
        share = 1.0 / np.bincount(row, minlength=len(graph))[row]  # [C]
        positive, negative, weight = (share * x[row] for x in (credit.positive, credit.negative, credit.weight))
    return Copies(row, leaf, use[row] * positive, use[row] * negative, use[row] * weight)


def aggregate(
    graph: StepGraph,
    copies: Copies,
    how: Aggregation,
    sequence: SequenceUnit,
) -> np.ndarray:
    """[C] the weight of each decision of a copy; `copies` are those of a mini-batch. See `aggregation_weights`."""
    assert graph.tokens is not None
    n_tokens = np.bincount(token_rows(graph.tokens), decisions(graph.tokens), len(graph))[copies.row]  # [C]
    key = np.arange(len(copies.row)) if sequence == "step" else copies.path  # [C]
    return aggregation_weights(n_tokens, copies.weight, key, how)


def spread(target_row: np.ndarray, copy_row: np.ndarray) -> Spread:
    """The targets of each copy, from the row of each target (`target_row` [K]) and of each copy (`copy_row` [C])."""
    order = np.argsort(target_row, kind="stable")  # [K]
    start = np.searchsorted(target_row[order], copy_row)  # [C]
    size = np.searchsorted(target_row[order], copy_row, side="right") - start  # [C]
    copy = np.repeat(np.arange(len(copy_row)), size)  # [X]
    place = np.arange(len(copy)) - np.repeat(np.cumsum(size) - size, size)  # [X] place of the target inside its copy
    return Spread(order[start[copy] + place], copy)


def roots(parent: np.ndarray) -> np.ndarray:
    """[N] int64, the root above each row; rows that share a path have the same root."""
    root = np.arange(len(parent))  # [N]
    for rows in levels(parent)[1:]:
        root[rows] = root[parent[rows]]
    return root


def aggregation_weights(
    n_tokens: np.ndarray,
    multiplicity: np.ndarray,
    key: np.ndarray,
    how: Aggregation = "token-mean",
) -> np.ndarray:
    """Weight of each decision of a row in the loss of a mini-batch; denominators are over the whole mini-batch.

    Args:
        n_tokens: [N] int64, number of decisions of each row.
        multiplicity: [N] float, how often each row counts (paths through it, times its weight); 0 leaves it out.
        key: [N] int64, the sequence of each row: a step (prompt and response, as in verl) or an episode.
        how: token-mean: 1 / decisions. seq-mean-token-sum: 1 / sequences. seq-mean-token-mean: 1 / (sequences *
            decisions of the row's sequence). seq-mean-token-sum-norm: 1 / (sequences * decisions of the longest
            sequence of the mini-batch). verl's
            seq-mean-token-sum-norm divides the sum over sequences by the padded length alone; here it is a mean over
            sequences, as the name says.

    Returns:
        [N] float64, factors of a row's P, M and W (see `agentrl.credit.Credit`).
    """
    if how == "token-mean":
        return np.full(len(n_tokens), 1.0 / max(float((n_tokens * multiplicity).sum()), 1e-300))
    key = np.unique(key, return_inverse=True)[1]  # [N]
    length = np.bincount(key, n_tokens * (multiplicity > 0), minlength=1)  # decisions of each sequence
    times = np.zeros(len(length))  # how often each sequence counts
    np.maximum.at(times, key, np.where(n_tokens > 0, multiplicity, 0.0))
    divisor = np.ones(len(length))
    if how == "seq-mean-token-mean":
        divisor = np.maximum(length, 1)
    elif how == "seq-mean-token-sum-norm":
        divisor = np.full(len(length), max(length.max(initial=1), 1))
    weights: np.ndarray = 1.0 / (max(float(times.sum()), 1e-300) * divisor[key])  # [N]
    return weights
