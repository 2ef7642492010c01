"""Credit from Bellman values on the merged state graph of a group.

Formula: `A = GN(gamma V(s') - V(s) | state)`, `V(u) = gamma * mean of V(v) over the edges (u, v)`.

Source: GRAFT (the successor of GraphGPO; definition from the paper, no code exists). V(u) = gamma * mean of V
over the edges out of u, every executed step an edge; a node without edges out of it has the value of its outcome, the
mean score of the episodes that end there. The temporal difference of a step is gamma V(s') - V(s) (with V = outcome at
the end, so gamma is applied before it too). A is normalised among the steps of a node, population std; a step alone at
its node gets its sign.

The paper's graph GAE adds (gamma lam)^k times the mean difference of the edges k hops ahead. That sum is 0 for every
lam: V(u) = gamma * mean V(v) says that the differences of the edges out of u have mean 0, and with an edge all edges
out of its node are k hops ahead. So there is no option `lam` here; the paper's values of it (0.95, 0.8, 0.6) give the
same credit.

Choices here, since the text leaves them open: an episode's last step leads to its next state where that state
is known and other steps leave it and the episode did not terminate, else to a terminal node that ends with
its score; the recursion of V stops at 1e-10, and a difference below 1e-8 is 0.
"""

import numpy as np
from pydantic import Field

from agentrl.algorithms.credit.graph_gpo import merged_edges
from agentrl.credit import Credit, Options
from agentrl.graph import StepGraph, graph_values, group_norm, keys

PAPER = "GRAFT, successor of GraphGPO (arXiv:2605.26684)"
NEEDS = ("state",)

SWEEPS_END, ROUNDING = 1e-10, 1e-8  # largest move of a value that ends the sweeps; what counts as 0 after them


class Config(Options, frozen=True):
    """gamma: discount per edge of the merged graph."""

    gamma: float = Field(0.99, ge=0, le=1)
    eps: float = Field(1e-6, ge=0)


def credit(graph: StepGraph, config: Config) -> Credit:
    """Temporal differences of graph values, normalised per node."""
    left = keys(np.tile(graph.peers, 2), np.concatenate([graph.state, graph.next_state]))  # [2N]
    goes_on = np.isin(left[len(graph) :], left[: len(graph)]) & ~graph.terminated  # [N]
    end = graph.last & ~goes_on  # [N]
    outcome = keys(graph.score)  # [N] terminal nodes: one per outcome and group
    u, v = merged_edges(graph, np.where(end, outcome, -1))
    nodes = int(max(u.max(initial=-1), v.max(initial=-1))) + 1
    fixed = np.full(nodes, np.nan)  # [K]
    fixed[v[end]] = graph.score[end]
    value = graph_values(
        u, v, fixed, how="bellman", gamma=config.gamma, weight=graph.weight, tolerance=SWEEPS_END
    )  # [K]
    delta = config.gamma * value[v] - value[u]  # [N]
    # A step that is alone at its node gets the sign of its difference, which must not be the sign of a rounding error.
    delta[np.abs(delta) <= ROUNDING] = 0.0
    advantage = group_norm(delta, u, std="population", eps=config.eps, singleton="sign", weight=graph.weight)  # [N]
    return Credit.of(advantage, parts={"value": value[u]})
