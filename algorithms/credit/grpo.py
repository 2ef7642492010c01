"""Group-relative policy optimisation: the episode's score, normalised inside its group, on every step.

Source: GRPO, Shao et al., arXiv:2402.03300, Eq. 3 (outcome supervision). The paper divides by the standard deviation
over G outputs; `unit=step` is what verl-agent's code does (every step row votes), `singleton=pass` is what its code
gives a group of one. `invalid_penalty` is verl-agent's: subtracted from the score on rows whose format was invalid.
"""

from typing import Literal

import numpy as np
from pydantic import BaseModel, Field

from agentrl.credit import Credit
from agentrl.graph import StepGraph
from agentrl.segments import Singleton, Std, group_norm


class Config(BaseModel, frozen=True, extra="forbid"):
    """unit: what counts once in mean and std. std="none" gives the mean-only form (Dr. GRPO, arXiv:2503.20783)."""

    std: Std = "sample"
    unit: Literal["episode", "step"] = "episode"
    singleton: Singleton = "zero"
    eps: float = Field(1e-6, ge=0)
    invalid_penalty: float = Field(0.0, ge=0)


def episode_advantage(graph: StepGraph, config: Config) -> np.ndarray:
    """[N] normalised episode score of each row."""
    score = graph.score - config.invalid_penalty * ~graph.valid  # [N]
    votes = graph.weight * graph.first if config.unit == "episode" else graph.weight  # [N]
    return group_norm(
        score, graph.group, std=config.std, eps=config.eps, singleton=config.singleton, weight=votes
    )


def credit(graph: StepGraph, config: Config) -> Credit:
    """Every step of an episode gets the episode's advantage."""
    return Credit.of(episode_advantage(graph, config))
