"""Divides rows into mini-batches, one per optimiser step, of whole groups or whole rollouts. A tree is never divided.

Letters: N rows, U units.
"""

from typing import Literal

import numpy as np

from agentrl.graph import StepGraph


def split(
    graph: StepGraph,
    rows: np.ndarray,
    count: int,
    unit: Literal["group", "rollout"],
    order: np.random.Generator,
) -> list[np.ndarray]:
    """Divide `rows` (ascending) into at most `count` mini-batches of whole units, in random order.

    A unit is a group or, with `unit="rollout"`, a family (see `families`). Each mini-batch is an ascending, non-empty
    array of rows. If there is only one mini-batch, nothing is drawn from `order`.
    """
    if not len(rows):
        return []
    key = graph.group[rows] if unit == "group" else families(graph)[rows]  # [rows]
    units = np.unique(key)
    if count == 1 or len(units) == 1:
        return [rows]
    parts = np.array_split(order.permutation(units), min(count, len(units)))
    return [rows[np.isin(key, part)] for part in parts]


def families(graph: StepGraph) -> np.ndarray:
    """[N] int64, the number of each row's family: all rollouts that parents, calls, contexts or trees link together."""
    label = np.unique(graph.rollout, return_inverse=True)[1].astype(np.int64)  # [N]
    links = [(np.flatnonzero(above >= 0), above[above >= 0]) for above in (graph.parent, graph.caller)]
    if graph.tokens is not None:
        context = graph.tokens.context
        links.append((np.flatnonzero(context >= 0), context[context >= 0]))
    roots = np.flatnonzero(graph.parent < 0)
    first = np.unique(graph.tree[roots], return_index=True, return_inverse=True)
    links.append((roots, roots[first[1][first[2]]]))
    below, above = (np.concatenate(side) for side in zip(*links, strict=True))
    root = np.arange(label.max(initial=-1) + 1)  # [rollouts] smallest rollout known to be of the same family
    while True:
        joined = root.copy()
        low = np.minimum(joined[label[below]], joined[label[above]])  # [links]
        np.minimum.at(joined, label[below], low)
        np.minimum.at(joined, label[above], low)
        joined = joined[joined]
        if (joined == root).all():
            return root[label]
        root = joined
