"""A cost for each step that leads to an earlier state of its episode, or that does not change the state.

Formula: `r = -cost` on a step that leads to a state of its own path, else 0.

Source: none; the project's own. It is a step penalty that is charged only on steps that show nothing new. The
environment says which states are equal (`Observation.state_key`). The return of an episode tells little about one
superfluous step, because the episode may succeed nevertheless; this cost is charged at the step itself. It is not
potential-based shaping, so it may change which policy is optimal. The cost is also charged if the task needs the step
to an earlier state. It is not charged on a useless step to a new state, such as picking up any object. Keep the cost
small against the reward of success, and watch the success rate. The column `back` of `agentrl report --diagnose` shows
the share of such steps. Use this reward beside the environment's own reward:

    [[reward]]
    name = "weighted_sum"
    weights = { env_reward = 1.0 }
    [[reward]]
    name = "revisit_cost"
    cost = 0.05
"""

import numpy as np
from pydantic import BaseModel, Field

from agentrl.graph import StepGraph, revisits


class Config(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """cost: cost of each step to a state of its own path, in the unit of the reward."""

    cost: float = Field(0.05, ge=0)


def reward(graph: StepGraph, config: Config) -> np.ndarray:
    """[N] 0, or -cost on steps that lead to a state of their own path."""
    return -config.cost * revisits(graph.state, graph.next_state, graph.parent)
