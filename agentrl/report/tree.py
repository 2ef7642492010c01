"""The steps of a group as a tree: a node is what was done after one history, a branch is where episodes part."""

import numpy as np

from agentrl.graph import PLAYED, PROBE, StepGraph, tree_up
from agentrl.report.credit_schema import TreeNode
from agentrl.report.printable import numbers


def lanes(graph: StepGraph) -> np.ndarray:
    """[N] int64, calls between a step's agent and the main agent."""
    lane = np.zeros(len(graph), np.int64)
    called = np.flatnonzero(graph.caller >= 0)
    for _ in range(len(called)):
        deeper = lane.copy()
        deeper[called] = lane[graph.caller[called]] + 1
        if np.array_equal(deeper, lane):
            break
        lane = deeper
    return lane


def tree_nodes(
    graph: StepGraph, rows: np.ndarray, place: np.ndarray, lane: np.ndarray, value: np.ndarray
) -> list[TreeNode]:
    """The tree of some steps, parents before children.

    Steps are one node if their histories are the same (the same states and actions since the task began), and if they
    did the same in the same state; so copies of a task share a stem until they part, and stored branches (`parent`)
    leave the stem where they began. Steps without a stored state share no node.

    Args:
        graph: any step graph.
        rows: [n] of whole episodes.
        place: [N+1], row -> shown step.
        lane: [N], see `lanes`.
        value: [N], see `values_below`.
    """
    node_of: dict[int, int] = {}
    index: dict[tuple[int, ...], int] = {}
    parents: list[int] = []
    called: list[bool] = []
    members: list[list[int]] = []
    for row in rows[np.lexsort((rows, lane[rows]))].tolist():  # callers before the agents that they called
        above, caller = int(graph.parent[row]), int(graph.caller[row])
        parent = node_of.get(above, node_of.get(caller, -1) if above < 0 else -1)
        state = int(graph.state[row])
        own = (-1, row) if state < 0 else (state, int(graph.action[row]))
        key = (parent, int(above < 0), int(graph.agent[row]), int(graph.kind[row]), *own)
        if key not in index:
            index[key] = len(parents)
            parents.append(parent)
            called.append(above < 0 and caller >= 0)
            members.append([])
        node_of[row] = index[key]
        members[index[key]].append(row)
    return [
        TreeNode(
            parent=parent,
            called=by_call,
            steps=place[np.array(steps)].tolist(),
            value=numbers(np.array([_mean(value[steps])]))[0],
        )
        for parent, by_call, steps in zip(parents, called, members, strict=True)
    ]


def values_below(graph: StepGraph, rows: np.ndarray) -> np.ndarray:
    """[N] float64, the mean over a row's continuations, step by step (`tree_up`); a leaf has its episode's score.

    Played steps and probes count for themselves. NaN for candidates, which nobody played, and for episodes that the
    environment ended.
    """
    value = np.full(len(graph), np.nan)
    score, lost = graph.score, graph.failed()
    for kind in (PLAYED, PROBE):
        own = rows[(graph.kind[rows] == kind) & ~lost[rows]]  # [n] ascending
        if len(own):
            at = np.full(len(graph) + 1, -1, np.int64)
            at[own] = np.arange(len(own))
            value[own] = tree_up(score[own], at[graph.parent[own]])
    return value


def _mean(values: np.ndarray) -> float:
    given = values[~np.isnan(values)]
    return float(given.mean()) if len(given) else np.nan
