"""Successes of earlier batches join the groups of their tasks.

Formula: `copies` stored successes of the task, drawn at random, join its group.

Source: RLEP, arXiv:2507.07451 (experience replay of verified successes): of each question a pool of solved answers is
kept, `copies` of them are drawn at random and join the fresh group, and the group's mean and standard deviation are
those of both together. A replayed answer keeps the log-probs of the policy that gave it.

Departures: RLEP collects its pool once, by a policy trained before; here it grows with the run, and `runs` adds that of
other runs. `when = "failed"` replays only where all fresh copies failed, so that such a group has a gradient.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from agentrl.rollout import Fresh, Joins, ReplayOptions, Stored

PAPER = "RLEP, arXiv:2507.07451"


class Config(ReplayOptions, frozen=True):
    """See the module.

    Attributes:
        when: join every group (always), or those whose fresh copies all failed (failed).
        statistics: whether replayed successes count in the group's mean and standard deviation.
    """

    when: Literal["always", "failed"] = "always"
    statistics: bool = True


def worth(config: Config, rollout: Stored) -> bool:
    """Solved rollouts are kept."""
    return rollout.succeeded


def retrieve(config: Config, fresh: Fresh, stored: Sequence[Stored], rng: np.random.Generator) -> list[int]:
    """At most `copies` of the stored successes, at random."""
    if config.when == "failed" and fresh.succeeded.any():
        return []
    return sorted(int(i) for i in rng.permutation(len(stored))[: config.copies])


def joins(config: Config) -> Joins:
    """Joined rollouts are trained."""
    return Joins(in_statistics=config.statistics, in_gradient=True)
