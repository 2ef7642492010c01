"""Group-in-group policy optimisation: GRPO's episode term plus a term among steps taken from the same state.

Source: GiGPO, Feng et al., arXiv:2505.10978, Eq. 3 (episode), 6-7 (discounted step returns, anchor-state groups), 8 (sum).
"""

import numpy as np
from pydantic import Field

from agentrl.algorithms.credit import grpo
from agentrl.credit import Credit
from agentrl.graph import StepGraph
from agentrl.segments import group_norm, keys, scan


class Config(grpo.Config):
    """gamma: discount per step. step_weight: the paper's omega."""

    gamma: float = Field(0.95, ge=0, le=1)
    step_weight: float = 1.0


def step_return(graph: StepGraph, gamma: float, invalid_penalty: float) -> np.ndarray:
    """[N] discounted return of each step; the penalty is local: earlier steps do not see it."""
    return scan(graph.reward, gamma, graph.parent) - invalid_penalty * ~graph.valid


def credit(graph: StepGraph, config: Config) -> Credit:
    """A = A_episode + step_weight * A_step; a state seen once adds nothing."""
    episode = grpo.episode_advantage(graph, config)  # [N]
    returns = step_return(graph, config.gamma, config.invalid_penalty)  # [N]
    anchor = keys(graph.group, graph.state)  # [N]
    step = group_norm(returns, anchor, std=config.std, eps=config.eps, weight=graph.weight)  # [N]
    return Credit.of(
        episode + config.step_weight * step,
        parts={
            "episode_advantage": episode,
            "step_advantage": step,
            "step_return": returns,
            "step_group": anchor.astype(np.float64),
        },
    )
