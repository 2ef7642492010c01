"""Credit from Bellman values on the merged state graph of a group.

Source: GRAFT (the successor of GraphGPO; definition from the paper, no code exists). V(u) = gamma * mean of V
over the edges out of u, every executed step an edge; a node that nothing leaves has its outcome, the mean
score of the episodes that end there. The temporal difference of a step is gamma V(s') - V(s) (with V =
outcome at the end, so gamma is applied before it too). Graph GAE adds (gamma lam)^k times the mean difference
of the edges k hops ahead; A is normalised among the steps of a node, population std; a step alone at its node
gets its sign.

Choices here, since the text leaves them open: an episode's last step leads to its next state where that state
is known and other steps leave it and the episode did not terminate, else to a terminal node that ends with
its score; "k hops ahead" averages by the walk (each fork equally), A(e) = delta(e) + gamma lam * mean A(edges
out of s'), so that cost stays linear, not over the set of edges at distance k; both recursions stop at 1e-10
and a difference below 1e-8 is 0.
"""

from functools import partial

import numpy as np
from pydantic import Field

from agentrl.algorithms.credit.graph_gpo import merged_edges
from agentrl.credit import Credit, Options
from agentrl.graph import StepGraph, graph_values, group_norm, keys

PAPER = "GRAFT, successor of GraphGPO (arXiv:2605.26684)"
NEEDS = ("state",)

SWEEPS_END, ROUNDING = 1e-10, 1e-8  # largest move of a value that ends the sweeps; what counts as 0 after them


class Config(Options, frozen=True):
    """gamma and lam are per edge."""

    gamma: float = Field(0.99, ge=0, le=1)
    lam: float = Field(0.95, ge=0, le=1)
    eps: float = Field(1e-6, ge=0)


def credit(graph: StepGraph, config: Config) -> Credit:
    """Graph GAE, normalised per node."""
    left = keys(np.tile(graph.peers, 2), np.concatenate([graph.state, graph.next_state]))  # [2N]
    goes_on = np.isin(left[len(graph) :], left[: len(graph)]) & ~graph.terminated  # [N]
    end = graph.last & ~goes_on  # [N]
    outcome = keys(graph.score)  # [N] terminal nodes: one an outcome and group
    u, v = merged_edges(graph, np.where(end, outcome, -1))
    nodes = int(max(u.max(initial=-1), v.max(initial=-1))) + 1
    fixed = np.full(nodes, np.nan)  # [K]
    fixed[v[end]] = graph.score[end]
    sweeps = partial(graph_values, u, v, how="bellman", weight=graph.weight, tolerance=SWEEPS_END)
    value = sweeps(fixed, gamma=config.gamma)  # [K]
    delta = config.gamma * value[v] - value[u]  # [N]
    ahead = np.where(np.isnan(fixed), np.nan, 0.0)  # [K] nothing lies beyond an end
    decay = config.gamma * config.lam
    later = sweeps(ahead, gamma=decay, gain=delta)  # [K]
    ahead_of = delta + decay * later[v]  # [N]
    ahead_of[np.abs(ahead_of) <= ROUNDING] = 0.0  # a lone step's sign must not be the sign of a residual
    advantage = group_norm(ahead_of, u, std="population", eps=config.eps, singleton="sign", weight=graph.weight)  # [N]
    return Credit.of(advantage, parts={"value": value[u]})
