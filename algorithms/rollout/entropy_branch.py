"""Chains that branch after a tool result that raised the policy's entropy.

Formula: a copy is made after turn t iff `clip(u - weight * (H_t - H_0), 0, 1) <= threshold`, u uniform in [0, 1].

Source: ARPO, arXiv:2507.19849, section 3.2, and RUC-NLPIR/ARPO. Of n = `batch.copies` episodes per task, m begin at
once. H_t is the entropy of turn t: the sum over the answer's first 20 tokens of -sum p log p / log V over the ten most
probable tokens (a sum, not a mean), H_0 that of the first turn on its path. After each turn that did not end its
episode, every chain that is going on is copied there with u ~ U(0, 1), as long as episodes are left: a copy is made iff
clip(u - weight * (H_t - H_0), 0, 1) <= threshold, with beam - 1 tries per turn. A task whose chains have all ended, and
which has episodes left, gets one fresh chain.

The released code moves all chains turn by turn. Here a chain is played to its end before its turns are looked at. Both
give the same distribution of rollouts, because the turns of a chain do not depend on its copies.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pydantic import Field

from agentrl.rollout import Branch, EpisodeRecord, Expansion, RolloutOptions, StepRecord, lost

FILLS = ("tree",)
ENTROPY = True


class Config(RolloutOptions, frozen=True):
    """initial: m, chains that begin at once; 0 takes half of batch.copies. tokens: first tokens of an answer over which
    its entropy is summed. weight: factor of the rise of entropy. threshold: an answer branches if a number drawn from
    [0, 1), minus weight times the rise of entropy, is at or below it. beam: 1 + the most copies per turn."""

    initial: int = Field(0, ge=0)
    tokens: int = Field(20, ge=1)
    weight: float = Field(0.2, ge=0)
    threshold: float = Field(0.5, ge=0, le=1)
    beam: int = Field(2, ge=1, le=1000)


class Going(NamedTuple):
    """A chain, and the round in which its turn 0 was played."""

    record: EpisodeRecord
    start: int


def leaves(config: Config, copies: int) -> int:
    """Scored episodes per task."""
    return copies


async def rollout(config: Config, batch: Expansion, copies: int) -> list[EpisodeRecord]:
    """See `agentrl.rollout.expansion`."""
    begun = min(config.initial or max(1, copies // 2), copies)
    going: dict[int, list[Going]] = {group: [] for group in batch.groups}
    for record in await batch.begin(begun, remember=True):
        going[record.group].append(Going(record, 0))
    number = 0
    while any(len(chains) < copies for chains in going.values()):
        copied: list[tuple[Going, Branch]] = []
        idle: list[int] = []
        for group, chains in going.items():
            active = [chain for chain in chains if goes_on(chain, number)]
            drawn = [(c, b) for c in active for b in branches(c, number, config, batch)][: copies - len(chains)]
            copied += drawn
            idle += [group] if not active and len(chains) < copies else []
        played = await batch.go_on([branch for _, branch in copied], remember=True)
        for (parent, _), record in zip(copied, played, strict=True):
            going[record.group].append(Going(record, parent.start))
        for record in await batch.begin(1, groups=idle, remember=True):
            going[record.group].append(Going(record, number + 1))
        number += 1
    return [chain.record for chains in going.values() for chain in chains]


def goes_on(chain: Going, number: int) -> bool:
    """Did the chain play a turn in this round that did not end it? A copy plays its first turn one round later."""
    turn = number - chain.start
    return not lost(chain.record) and chain.record.inherited <= turn < len(chain.record.steps) - 1


def branches(chain: Going, number: int, config: Config, batch: Expansion) -> list[Branch]:
    """The copies made of the chain after its turn in this round."""
    record, turn = chain.record, number - chain.start
    rise = entropy(record.steps[turn], config.tokens) - entropy(record.steps[0], config.tokens)
    u = batch.rng(record.group, record.copy, turn).random(config.beam - 1)  # [beam - 1]
    made = int((np.clip(u - config.weight * rise, 0.0, 1.0) <= config.threshold).sum())
    return [Branch(record, turn + 1)] * made


def entropy(step: StepRecord, tokens: int) -> float:
    """The entropy of an answer, summed over its first tokens.

    Raises:
        ValueError: the policy does not report entropies.
    """
    told: Sequence[float] | np.ndarray | None = step.generation.entropy
    if told is None:
        raise ValueError("rollout.name=entropy_branch needs the entropy of each token: set engine.name=hf")
    return float(np.sum(told[:tokens]))
