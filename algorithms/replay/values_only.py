"""Stored rollouts enter values and baselines, and never the gradient.

Formula: the `copies` latest stored rollouts of the task join its group with weight 0 in the gradient.

Where states have keys and steps are deterministic, an old step says something about the environment that stays true:
the state that it led to, and the outcome. Joined to the group of its task, the old step enters the step groups of
GiGPO, the values of GRAFT, the distances of GraphGPO and the group's mean, and gets no credit itself. If all fresh
copies of a task did the same, they are then compared with what earlier copies did. Only the fresh rows are trained.
They are samples of the present policy, so there is no importance weight and no off-policy gradient.

What is exact, and what is not: a baseline that does not depend on the present action leaves the expected gradient as
it is, whichever policy the baseline came from (`rloo`, and `grpo` or `gigpo` with `std = "none"`). If a rollout counts
in its own baseline, as in GRPO, this only scales the gradient. A division by the standard deviation is biased with and
without replay. The merged graphs of GRAFT and GraphGPO are not such baselines: measured against exact gradients, stored
steps lower the noise and raise the bias of these two methods (`make bench-credit`, docs/results/replay.md).

Source: none; the project's own.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from agentrl.rollout import Fresh, Joins, ReplayOptions, StoredRollout


class Config(ReplayOptions, frozen=True):
    """copies: largest number of stored rollouts that join a group; the latest rollouts of the task are taken."""

    copies: int = Field(8, ge=1)


def retrieve(config: Config, fresh: Fresh, stored: Sequence[StoredRollout], rng: np.random.Generator) -> list[int]:
    """The indices of the `copies` latest stored rollouts."""
    return [*range(max(0, len(stored) - config.copies), len(stored))]


def joins(config: Config) -> Joins:
    """Replayed rollouts count in statistics, and are never trained."""
    return Joins(in_statistics=True, in_gradient=False)
