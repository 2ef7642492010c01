"""Root-to-leaf paths of a step graph, and the graphs made of them."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from agentrl.graph.step_graph import StepGraph
from agentrl.graph.tokens import Tokens


class Paths(NamedTuple):
    """The rows of all paths, one path after another, each from its root to its leaf, as two arrays of equal length.

    In this module, the shape [P rows] means: one entry per entry of these two arrays.

    Attributes:
        row: row of the graph.
        leaf: number of the path, 0 to the number of paths - 1.
    """

    row: np.ndarray
    leaf: np.ndarray


def paths(graph: StepGraph) -> Paths:
    """All root-to-leaf paths of the graph. A row that several chains share is on several paths."""
    parent = graph.parent
    current = np.setdiff1d(np.arange(len(graph)), parent[parent >= 0])  # [P] leaves
    number = np.arange(len(current))
    rows, owners = [current], [number]
    while len(current):
        above = parent[current]
        current, number = above[above >= 0], number[above >= 0]
        rows.append(current)
        owners.append(number)
    row, leaf = np.concatenate(rows), np.concatenate(owners)
    order = np.lexsort((row, leaf))
    return Paths(row[order], leaf[order])


def forked(graph: StepGraph) -> bool:
    """Does a path run through several episodes, or has a row several children? If so, paths are not episodes."""
    inner = graph.parent >= 0
    crosses = graph.episode[graph.parent[inner]] != graph.episode[inner]
    return bool(graph.branched or crosses.any())


def select(graph: StepGraph, rows: np.ndarray) -> StepGraph:
    """The sub-graph of `rows` (ascending) with their tokens and token columns.

    It serves credit only: the contexts of the rows and the allowed sets of the tokens are dropped.
    """
    part = graph.take(rows)
    if graph.tokens is None:
        return part
    lengths = np.diff(graph.tokens.offsets)  # [N]
    mask = np.repeat(np.isin(np.arange(len(graph)), rows), lengths)  # [S]
    n, s = len(rows), int(mask.sum())
    tokens = Tokens(
        offsets=np.concatenate([[0], np.cumsum(lengths[rows])]),
        ids=graph.tokens.ids[mask],
        sampled=graph.tokens.sampled[mask],
        logprobs=graph.tokens.logprobs[mask],
        allowed_offsets=np.zeros(s + 1, np.int64),
        allowed_ids=np.zeros(0, np.int64),
        context=np.full(n, -1),
        context_tokens=np.zeros(n, np.int64),
        columns={name: column[mask] for name, column in graph.tokens.columns.items()},
    )
    return replace(part, tokens=tokens)


def expand(graph: StepGraph, on: Paths) -> StepGraph:
    """A graph with one episode per root-to-leaf path; each episode holds copies of the path's rows with their rewards.

    A path belongs to the rollout of its leaf and, if there is a `score` column, takes the score of its leaf's episode.
    If branches start from different states, `next_state` is set per path. Tokens, token columns, texts and tails are
    dropped, and every `caller` is -1.
    """
    start = np.ones(len(on.row), bool)
    start[1:] = on.leaf[1:] != on.leaf[:-1]  # [P rows] first row of its path
    end = np.append(np.flatnonzero(start)[1:], len(on.row)) - 1  # [paths]
    columns = {name: x[on.row] for name, x in graph.columns.items()}
    columns["parent"] = np.where(start, -1, np.arange(len(on.row)) - 1)
    columns["caller"] = np.full(len(on.row), -1)
    columns["next_state"] = _next_on_path(graph, on, start)
    columns["episode"] = on.leaf
    columns["rollout"] = graph.rollout[on.row[end]][on.leaf]
    if graph.has("score"):
        columns["score"] = graph.score[on.row[end]][on.leaf]
    return StepGraph(columns=columns, names=graph.names)


def _next_on_path(graph: StepGraph, on: Paths, start: np.ndarray) -> np.ndarray:
    """[P rows] int64, the next state of each copy.

    If some child of the row begins in the row's `next_state`, the copy gets the state of the next row on the path.
    Otherwise, and on the last row of a path, the copy keeps the row's `next_state`.
    """
    below = np.flatnonzero(graph.parent >= 0)
    agrees = graph.state[below] == graph.next_state[graph.parent[below]]
    a_childs = np.isin(np.arange(len(graph)), graph.parent[below[agrees]])  # [N]
    after: np.ndarray = graph.next_state[on.row]  # [P rows]
    inner = np.flatnonzero(~start) - 1  # copies with a next row on their path
    inner = inner[a_childs[on.row[inner]]]
    after[inner] = graph.state[on.row[inner + 1]]
    return after
