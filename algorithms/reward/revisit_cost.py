"""A cost for each step that leads to an earlier state of its episode, or that does not change the state.

Formula: `r = -cost` on a step that leads to a state of its own path, else 0.

Source: none; the project's own. It is a step penalty that is charged only on steps that show nothing new. The
environment says which states are equal (`Observation.state_key`). Returns alone tell little about one superfluous step,
because the episode may succeed nevertheless; this cost is paid at the step itself. It is not potential-based shaping,
so it changes which policy is optimal: it charges where going back is needed, and it pays for changes that only make the
state look new, such as picking up anything. Keep it small beside the reward of success, and measure success. Column
`back` of `agentrl diagnose` shows how many steps pay it. Use it beside the environment's own reward:

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
    """cost: cost of each such step, in the unit of the reward."""

    cost: float = Field(0.05, ge=0)


def reward(graph: StepGraph, config: Config) -> np.ndarray:
    """[N] 0, or -cost on steps that lead to a state of their own path."""
    return -config.cost * revisits(graph.state, graph.next_state, graph.parent)
