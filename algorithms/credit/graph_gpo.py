"""Step credit from distances in the merged state graph of a group, plus the episode term.

Formula: `A = episode_weight * GN(score | group) + step_weight * GN(10 * discount^d(s') | group, state)`.

Source: GraphGPO, arXiv:2605.26684. Nodes are states, edges are executed steps; the last step of an episode that
terminated with success leads to a success node; d(s) is the number of edges on the shortest path to it over all edges
of the group (where success cannot be reached: the largest finite distance of the group + 1). A step into s' returns 10
* discount^d(s'), or 10 * discount^(d(s') - d(s) + 1) with `normalize_distance`; returns are compared among steps from
the same state. Official code (verl-agent recipe): statistics of both terms count step rows, a group of one passes its
score through the episode term; these are the defaults here too. discount is 0.1 for ALFWorld and 0.2 for WebShop there.
"""

from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from agentrl.algorithms.credit import grpo
from agentrl.credit import Credit
from agentrl.graph import Singleton, StepGraph, graph_values, group_max, group_norm, keys

PAPER = "GraphGPO, arXiv:2605.26684"
NEEDS = ("state",)


class Config(grpo.Config, frozen=True):
    """discount: factor per edge to success. normalize_distance: discount by how the step changes the distance to
    success, not by that distance. unit: what the statistics of the episode term count. singleton: what a group of one
    gets in the episode term.
    """

    discount: float = Field(0.1, ge=0, le=1)
    normalize_distance: bool = False
    step_weight: float = 1.0
    episode_weight: float = 1.0
    unit: Literal["episode", "step"] = "step"
    singleton: Singleton = "pass"


class Edges(NamedTuple):
    """Each step as an edge of its group's merged graph, [N] int64 each: from node u to node v of 0..K-1."""

    u: np.ndarray
    v: np.ndarray


def merged_edges(graph: StepGraph, end: np.ndarray) -> Edges:
    """Nodes are states of a group, separate for each agent; `end` [N] int64 >= 0 names the terminal node that a step
    leads to instead of a state, -1 for none.

    A step whose next state is unknown leads to a node of its group that has no edges out of it.
    """
    after = np.where(end >= 0, -2 - end, graph.next_state)  # [N]
    node = keys(np.tile(graph.peers, 2), np.concatenate([graph.state, after]))  # [2N]
    return Edges(node[: len(graph)], node[len(graph) :])


def distances(graph: StepGraph) -> Edges:
    """[N] distance to success of each step's own state, and of the state it leads to."""
    success = graph.last & graph.terminated & graph.succeeded  # [N]
    u, v = merged_edges(graph, np.where(success, 0, -1))
    fixed = np.full(int(max(u.max(initial=-1), v.max(initial=-1))) + 1, np.nan)  # [K]
    fixed[v[success]] = 0.0
    d = graph_values(u, v, fixed)  # [K]
    finite = np.maximum(np.where(np.isfinite(d[u]), d[u], 0.0), np.where(np.isfinite(d[v]), d[v], 0.0))  # [N]
    far = group_max(finite, graph.peers) + 1  # [N] of each step's group
    return Edges(np.where(np.isfinite(d[u]), d[u], far), np.where(np.isfinite(d[v]), d[v], far))


def credit(graph: StepGraph, config: Config) -> Credit:
    """A = episode_weight * A_episode + step_weight * A_step."""
    here, there = distances(graph)  # [N] each
    exponent = there - here + 1 if config.normalize_distance else there  # [N]
    returns = 10.0 * np.power(config.discount, exponent, where=exponent >= 0, out=np.zeros(len(graph)))  # [N]
    step = group_norm(
        returns, keys(graph.peers, graph.state), std=config.std, eps=config.eps, weight=graph.weight
    )  # [N]
    episode = grpo.episode_advantage(graph, config)  # [N]
    return Credit.of(
        config.episode_weight * episode + config.step_weight * step,
        parts={"distance": here, "step_return": returns},
    )
