"""Chains that branch after an answer; the more the entropy has risen since the first answer, the more often they
branch.

Formula: a copy is made after turn t iff `clip(u - weight * (H_t - H_0), 0, 1) <= threshold`, with u from U(0, 1).

Source: ARPO, arXiv:2507.19849, section 3.2, and RUC-NLPIR/ARPO. Of n = `batch.copies` episodes per task, m begin as
chains from the root. H_t is the entropy of turn t: the sum (not the mean) over the answer's first `tokens` tokens
(default: 20) of -sum p log p / log V, where the inner sum is over the ten most probable tokens and V is the size of the
vocabulary. H_0 is the entropy of the first turn on the path. After each turn t that did not end its episode, a number u
is drawn from U(0, 1) beam - 1 times. Each time that clip(u - weight * (H_t - H_0), 0, 1) <= threshold, a copy of the
chain begins there, if the task has fewer than n episodes. If all chains of a task have ended and the task has fewer
than n episodes, one fresh chain begins.

The released code plays all chains turn by turn. Here a chain is played to its end, and then its turns are examined in
order. Both give the same distribution of rollouts, because the turns of a chain do not depend on the chain's copies.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pydantic import Field

from agentrl.rollout import Branch, EpisodeRecord, Expansion, RolloutOptions, StepRecord, lost

FILLS = ("tree",)
ENTROPY = True


class Config(RolloutOptions, frozen=True):
    """Options.

    Attributes:
        initial: m, number of chains with which each task begins, at most batch.copies; 0 takes half of batch.copies.
        tokens: number of first tokens of an answer over which the entropy of the answer is summed.
        weight: factor of the rise of entropy since the first turn.
        threshold: a copy of a chain begins after an answer if a number drawn from [0, 1), minus weight times the rise
            of entropy, is at most this threshold.
        beam: one more than the largest number of copies that begin after one answer of a chain.
    """

    initial: int = Field(0, ge=0)
    tokens: int = Field(20, ge=1)
    weight: float = Field(0.2, ge=0)
    threshold: float = Field(0.5, ge=0, le=1)
    beam: int = Field(2, ge=1, le=1000)


class Going(NamedTuple):
    """A chain, and the round `start` to which its turn 0 belongs: turn t is examined in round start + t."""

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
    """True if the chain played a turn in this round, another turn followed, and no fault ended the chain.

    Turns that a copy shares with its parent do not count: a copy plays its first turn one round after it is made.
    """
    turn = number - chain.start
    return not lost(chain.record) and chain.record.inherited <= turn < len(chain.record.steps) - 1


def branches(chain: Going, number: int, config: Config, batch: Expansion) -> list[Branch]:
    """One branch per copy of the chain that begins after the chain's turn of this round."""
    record, turn = chain.record, number - chain.start
    rise = entropy(record.steps[turn], config.tokens) - entropy(record.steps[0], config.tokens)
    u = batch.rng(record.group, record.copy, turn).random(config.beam - 1)  # [beam - 1]
    made = int((np.clip(u - config.weight * rise, 0.0, 1.0) <= config.threshold).sum())
    return [Branch(record, turn + 1)] * made


def entropy(step: StepRecord, tokens: int) -> float:
    """The entropy of an answer, summed over the first `tokens` tokens of the answer.

    Raises:
        ValueError: the policy does not report entropies.
    """
    told: Sequence[float] | np.ndarray | None = step.generation.entropy
    if told is None:
        raise ValueError("rollout.name=entropy_branch needs the entropy of each token: set engine.name=hf or vllm")
    return float(np.sum(told[:tokens]))
