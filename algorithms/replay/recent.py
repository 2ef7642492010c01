"""The latest rollouts of earlier batches join the groups of their tasks and are trained again.

Formula: the `copies` latest stored rollouts of a task join the task's group.

Source: the recency-based retrieval of RePO, arXiv:2506.09340, from a buffer per prompt. Departure: RePO compares
replayed rollouts only with each other and adds a second objective for them. Here they are compared with the fresh group
(with `statistics = false` the mean and standard deviation are those of the fresh rollouts alone), and all rows share
one objective. For older rollouts use `loss.name = "m2po"`, or the capped importance weights of `update.importance`.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from agentrl.rollout import Fresh, Joins, ReplayOptions, StoredRollout

PAPER = "RePO, arXiv:2506.09340"


class Config(ReplayOptions, frozen=True):
    """See the module.

    Attributes:
        max_age: largest age in iterations of a rollout that joins a batch; None for no limit. Rollouts of other runs
            have no age.
        statistics: whether replayed rollouts count in the group's mean and standard deviation.
    """

    max_age: int | None = Field(4, ge=1)
    statistics: bool = False


def retrieve(config: Config, fresh: Fresh, stored: Sequence[StoredRollout], rng: np.random.Generator) -> list[int]:
    """The indices of the `copies` latest stored rollouts."""
    return [*range(max(0, len(stored) - config.copies), len(stored))]


def joins(config: Config) -> Joins:
    """Joined rollouts are trained."""
    return Joins(in_statistics=config.statistics, in_gradient=True)
