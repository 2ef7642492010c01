"""Successes of earlier batches join the groups of their tasks.

Formula: `copies` stored successes of the task, drawn at random, join its group.

Source: RLEP, arXiv:2507.07451 (experience replay of verified successes). RLEP stores a pool of right answers per
question. Some of them are drawn at random and join the fresh group, and the group's mean and standard deviation are
those of the fresh and the replayed answers together. A replayed answer keeps the log-probs of the policy that gave it.

Departures: RLEP collects the pool once, with a policy that was trained before. Here the pool grows during the run, and
the option `runs` adds the successes of other runs. With `when = "failed"`, successes join only groups whose fresh
copies all failed, so that such a group has a gradient.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from agentrl.rollout import Fresh, Joins, ReplayOptions, StoredRollout

PAPER = "RLEP, arXiv:2507.07451"


class Config(ReplayOptions, frozen=True):
    """See the module.

    Attributes:
        when: which groups stored successes join: every group (always), or groups whose fresh copies all failed
            (failed).
        statistics: whether replayed successes count in the group's mean and standard deviation.
    """

    when: Literal["always", "failed"] = "always"
    statistics: bool = True


def worth(config: Config, rollout: StoredRollout) -> bool:
    """Only successful rollouts are stored."""
    return rollout.succeeded


def retrieve(config: Config, fresh: Fresh, stored: Sequence[StoredRollout], rng: np.random.Generator) -> list[int]:
    """The indices of at most `copies` stored successes, drawn at random."""
    if config.when == "failed" and fresh.succeeded.any():
        return []
    return sorted(int(i) for i in rng.permutation(len(stored))[: config.copies])


def joins(config: Config) -> Joins:
    """Joined rollouts are trained."""
    return Joins(in_statistics=config.statistics, in_gradient=True)
