"""The steps of a group as a tree: each node holds the steps that took the same action after the same history."""

import numpy as np

from agentrl.graph import PLAYED, PROBE, StepGraph, tree_up
from agentrl.report.credit_schema import TreeNode
from agentrl.report.printable import numbers


def lanes(graph: StepGraph) -> np.ndarray:
    """[N] int64, number of agent calls between the main agent and a step's agent; 0 for the main agent."""
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

    Two steps belong to one node if they took the same action in the same state, have the same agent and kind, and their
    histories are equal (the same states and actions since the task began). So the copies of a task share nodes until
    they differ, and a stored branch (`parent`) begins at the node of the step from which it branched. A step without a
    stored state has a node of its own.

    Args:
        graph: any step graph.
        rows: [n] rows of whole episodes.
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
    """[N] float64, the value of each of `rows`: the mean of its children's values (`tree_up`), or a leaf's score.

    Played steps and probes are averaged separately. All other rows are NaN: rows that are not in `rows`, candidates,
    demonstrations, and rows of episodes that were lost to a fault (`StepGraph.failed`).
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
