"""Credit from Bellman values on the merged state graph of a group.

Formula: `A = GN(gamma V(s') - V(s) | state)`, `V(u) = gamma * mean of V(v) over the edges (u, v)`.

Source: GRAFT (the successor of GraphGPO), written from the paper's definition; no code is released. Every executed step
is an edge of the graph. A node without edges out of it is an end; its value is its outcome, the mean score of the
episodes that end there. The temporal difference of a step is gamma V(s') - V(s), also for the last step of an episode,
where V(s') usually is the outcome (see the last paragraph). A is this difference, normalised with the population
standard deviation among the steps that leave the same node. If only one step leaves a node, its A is the sign of its
difference.

The paper's graph GAE adds to the difference of an edge, for each k >= 1, (gamma lam)^k times the mean difference of the
edges that can be reached from it by k further steps. This sum is 0 for every lam. By the equation of V, the differences
of all edges out of a node have mean 0, and if one edge out of a node can be reached in k steps, so can all edges out of
this node. Therefore there is no option `lam` here; the paper's values of lam (0.95, 0.8, 0.6) give the same credit.

The paper does not say where an episode's last step leads, and when V is exact enough. Here it leads to its next state
under three conditions: the episode did not terminate, the next state is known, and a step of the group starts from this
state. In all other cases it leads to a terminal node whose value is the episode's score. V is iterated until no value
moves by more than 1e-10, and differences of at most 1e-8 count as 0.

The called chains of a program are compared by their steps (`agentrl.graph.step_votes`): with the steps of other called
chains, and those of one episode count once together.
"""

import numpy as np
from pydantic import Field

from agentrl.algorithms.credit.graph_gpo import merged_edges
from agentrl.credit import Credit, Options
from agentrl.graph import StepGraph, graph_values, group_norm, keys, step_peers, step_votes

PAPER = "GRAFT, successor of GraphGPO (arXiv:2605.26684)"
NEEDS = ("state",)

SWEEPS_END, ROUNDING = 1e-10, 1e-8  # sweeps end when no value moves by more; largest |difference| that counts as 0


class Config(Options, frozen=True):
    """gamma: discount per edge of the merged graph. preset: has no effect on this method."""

    gamma: float = Field(0.99, ge=0, le=1)
    eps: float = Field(1e-6, ge=0)

    @property
    def standardises(self) -> bool:
        return True


def credit(graph: StepGraph, config: Config) -> Credit:
    """Temporal differences of graph values, normalised per node."""
    left = keys(np.tile(step_peers(graph), 2), np.concatenate([graph.state, graph.next_state]))  # [2N]
    goes_on = np.isin(left[len(graph) :], left[: len(graph)]) & ~graph.terminated  # [N]
    end = graph.last & ~goes_on  # [N]
    outcome = keys(graph.score)  # [N] terminal nodes: one per outcome and group
    u, v = merged_edges(graph, np.where(end, outcome, -1))
    nodes = int(max(u.max(initial=-1), v.max(initial=-1))) + 1
    fixed = np.full(nodes, np.nan)  # [K]
    fixed[v[end]] = graph.score[end]
    weight = step_votes(graph, u)  # [N]
    value = graph_values(u, v, fixed, how="bellman", gamma=config.gamma, weight=weight, tolerance=SWEEPS_END)  # [K]
    delta = config.gamma * value[v] - value[u]  # [N]
    # The only step that leaves a node gets the sign of its difference, which must not be the sign of a rounding error.
    delta[np.abs(delta) <= ROUNDING] = 0.0
    advantage = group_norm(delta, u, std="population", eps=config.eps, singleton="sign", weight=weight)  # [N]
    return Credit.of(advantage, parts={"value": value[u]})
