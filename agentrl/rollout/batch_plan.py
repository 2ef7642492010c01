"""How the training batches of a run come about (`BatchPlan`), and the limits of one batch (`Budget`)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agentrl.config import Entry, resolve
from agentrl.credit import RewardTransform
from agentrl.rollout.expansion import RolloutMethod
from agentrl.rollout.guide import Guide
from agentrl.rollout.sampler import Sampler, SamplerFile
from agentrl.scoring import ScoreStage


class Budget(NamedTuple):
    """Limits of a batch: tokens that are sampled, and actions that are carried out; None for no limit."""

    tokens: int | None = None
    actions: int | None = None


NO_BUDGET = Budget()


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchPlan:
    """How the batches of a run come about. A run makes one plan, which all its batches follow.

    Attributes:
        sampler: draws the tasks.
        sampler_entry: the sampler's catalogue entry.
        tasks: number of groups per batch.
        copies: `batch.copies` of the recipe, from which the rollout method derives the number of chains per group.
        rollout: the rollout method; by default it plays independent chains.
        rewards: reward transforms. They are applied before the sampler judges a group, so that the sampler sees the
            same rewards as credit.
        reported: names of signals that earlier batches reported; the graph has their columns, with NaN on steps
            without the signal.
        budget: limits of everything that `collect` plays, groups that do not pass the sampler's filter included.
        scores: the scores of the recipe, which `collect` computes in each round before the reward transforms; None for
            no scores.
        guide: the guide of the recipe, which may change how the chains of `collect` begin; None for no guide.
        provision: number of groups in flight when `Provision.batch` starts, per group of the batch; at least 1.
        keeps_leftover: do the groups that `Provision.batch` leaves over continue in the next batch? If not, they are
            cancelled.
        staleness: largest age, in updates, of the weights with which a group of `Provision.batch` started.
    """

    sampler: Sampler
    sampler_entry: Entry[SamplerFile]
    tasks: int
    copies: int
    rollout: Entry[RolloutMethod] = field(default_factory=lambda: resolve(RolloutMethod, {"name": "chain"}))
    rewards: Sequence[Entry[RewardTransform]] = ()
    reported: Sequence[str] = ()
    budget: Budget = NO_BUDGET
    scores: ScoreStage | None = None
    guide: Guide | None = None
    provision: float = 1.0
    keeps_leftover: bool = False
    staleness: int = 0

    @property
    def rounds(self) -> int:
        """Largest number of rounds in which groups are played until enough groups pass the sampler's filter."""
        return self.sampler_entry.config.max_rounds if self.sampler_entry.hooks.keep else 1

    def groups_to_begin(self, *, pauses: bool = False) -> int:
        """Number of groups in flight when `Provision.batch` starts.

        If the groups that are left over would continue and a pause follows, this is the number of groups that the batch
        takes, so that no group is left over.
        """
        drains = pauses and self.keeps_leftover
        return self.tasks if drains else math.ceil(self.tasks * self.provision)
