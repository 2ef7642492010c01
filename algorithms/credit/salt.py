"""Step-level assignment on a merged trajectory graph: a group advantage averaged over equal steps.

Formula: `A = mean of A_base over the steps with an equal (state, action, next state)`.

Source: SALT, arXiv:2510.20022 (EACL 2026 Findings); no code is released. Steps of a group are the same edge if their
state, action and next state are equal. With `history` = h, the h (state, action) pairs before them must be equal too; a
step with fewer than h pairs before it equals only steps with the same number of pairs before them. Every step gets the
mean base advantage of the steps of its edge, so the advantages of steps that successful and failed episodes share move
towards 0. A step that an episode repeats counts each time. The result is not normalised again. The text of the paper
that we have gives the rule without a history window, which is history = 0. If an episode's last step has no next state,
a marker that tells success from failure takes its place.

The called chains of a program have the base advantage of their episode. In the mean over an edge, the chains of one
episode count once together (`agentrl.graph.step_votes`).
"""

from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from agentrl.algorithms.credit import grpo, rloo
from agentrl.credit import Credit
from agentrl.graph import StepGraph, context_key, count, keys, mean, step_votes

PAPER = "SALT, arXiv:2510.20022"
NEEDS = ("state", "action")


class Config(grpo.Config, frozen=True):
    """base: the method whose advantages are averaged; rloo takes no std and no eps. history: number of (state, action)
    pairs before a step that must be equal too."""

    base: Literal["grpo", "rloo"] = "grpo"
    history: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _base_takes_them(self) -> "Config":
        if self.base == "rloo" and (self.std, self.eps) != ("sample", 1e-6):
            raise ValueError("base=rloo takes no std and no eps")
        return self

    @property
    def standardises(self) -> bool:
        return self.base == "grpo" and self.std != "none"


def base_advantage(graph: StepGraph, config: Config) -> np.ndarray:
    """[N] the trajectory advantage before merging."""
    if config.base == "grpo":
        return grpo.episode_advantage(graph, config)
    base = rloo.Config(unit=config.unit, singleton=config.singleton, invalid_penalty=config.invalid_penalty)
    return rloo.credit(graph, base).advantage


def credit(graph: StepGraph, config: Config) -> Credit:
    """Each step gets the mean base advantage of its edge."""
    base = base_advantage(graph, config)  # [N]
    marker = np.where(graph.succeeded, -2, -1)  # [N]
    after = np.where(graph.next_state < 0, marker, graph.next_state)  # [N]
    step = keys(graph.state, graph.action)  # [N]
    edge = keys(graph.peers, context_key(step, graph.parent, config.history + 1), after)  # [N]
    average = mean(base, edge, step_votes(graph, edge))  # [N]
    merged = count(edge) > 1  # [N]
    return Credit.of(
        np.where(np.isnan(average) | ~merged, base, average),
        parts={"base_advantage": base, "merged": merged},
        metrics={"merged_steps": float(np.mean(merged)) if len(graph) else 0.0},
    )
