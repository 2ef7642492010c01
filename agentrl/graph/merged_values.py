"""Values on merged graphs. The nodes of a merged graph are the states of a group; its edges are the executed steps.

Letters: E edges (steps), K nodes.
"""

from typing import Literal

import numpy as np


def graph_values(
    u: np.ndarray,
    v: np.ndarray,
    fixed: np.ndarray,
    *,
    how: Literal["distance", "bellman"] = "distance",
    gamma: float = 1.0,
    gain: np.ndarray | None = None,
    weight: np.ndarray | None = None,
    tolerance: float = 1e-8,
) -> np.ndarray:
    """Values of the nodes of merged graphs, which are given by their edges u -> v.

    Args:
        u, v: [E] int64 nodes in 0..K-1; parallel edges count as often as they occur.
        fixed: [K] float, the known value of a node; NaN for a node whose value is to be computed. For distances, the
            nodes whose entry is not NaN are the goals, and their value is 0.
        how: `distance`: the number of edges on the shortest path to a goal, inf if there is none.
            `bellman`: V(u) = mean over the edges out of u of gain + gamma * V(v), 0 for nodes that no edge leaves.
        gamma: discount, for `bellman`.
        gain: [E] float, reward of each edge, for `bellman`; default 0.
        weight: [E] float, how often an edge counts in the mean, for `bellman`; default 1.
        tolerance: for `bellman`, sweeps end when no value moves by more than this.

    Returns:
        [K] float64.
    """
    if how == "distance":
        return _distances(u, v, np.where(np.isnan(fixed), np.inf, 0.0))
    free = np.isnan(fixed)  # [K]
    w = np.ones(len(u)) if weight is None else weight  # [E]
    out = np.bincount(u, w, minlength=len(fixed))  # [K]
    out[out == 0] = 1.0
    constant = np.zeros(len(fixed)) if gain is None else np.bincount(u, w * gain, minlength=len(fixed)) / out  # [K]
    value = np.where(free, 0.0, fixed)  # [K]
    while True:
        backed_up = constant + gamma * np.bincount(u, w * value[v], minlength=len(fixed)) / out  # [K]
        new = np.where(free, backed_up, value)  # [K]
        moved = np.max(np.abs(new - value), initial=0.0)
        value = new
        if moved <= tolerance:
            return value


def _distances(u: np.ndarray, v: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Breadth-first search from the nodes at distance 0, against the direction of the edges.

    Edges out of nodes whose distance is known are dropped.
    """
    level = 0
    while True:
        reached = u[(d[v] == level) & np.isinf(d[u])]
        if not len(reached):
            return d
        level += 1
        d[reached] = level
        open_edges = np.isinf(d[u])
        u, v = u[open_edges], v[open_edges]
