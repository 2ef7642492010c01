"""Chains, and Monte Carlo values of their states from probes, which are never trained.

Formula: `V(s) = mean return of K continuations from s`.

Source: VinePPO, arXiv:2410.01679, section 4: V(s_t) is the mean return of K fresh continuations from s_t. With `every`
= m only every m-th state is probed. A state in between has the value V = r + V(next), which gives its step the
advantage 0, so that the advantage of all m steps is on the first of them. The states after the last probed state of an
episode get their values in the same way. In the official code (McGill-NLP/VinePPO) K is 9, and a continuation that a
limit cut off gets a penalty as its return; here the option `unfinished` sets this return. A probe that a fault ended is
left out of the mean. If faults ended all probes of a state, the chain of this state is lost.
"""

import numpy as np
from pydantic import Field

from agentrl.graph import PROBE
from agentrl.rollout import Branch, EpisodeRecord, Expansion, RolloutOptions, lost
from agentrl.types import Status

FILLS = ("value",)
UNEVEN = True


class Config(RolloutOptions, frozen=True):
    """Options.

    Attributes:
        probes: K, number of probes per probed state.
        every: m, number of turns from one probed state to the next, from the first state of a chain on; 1 probes every
            state.
        unfinished: return of a probe that a limit or a content filter ended; None takes the sum of the probe's rewards.
    """

    probes: int = Field(9, ge=1, le=10_000)
    every: int = Field(1, ge=1)
    unfinished: float | None = None


def leaves(config: Config, copies: int) -> int:
    """Scored episodes per task."""
    return copies


async def rollout(config: Config, batch: Expansion, copies: int) -> list[EpisodeRecord]:
    """See `agentrl.rollout.expansion`. The records of the chains come first, then those of the probes."""
    chains = await batch.begin(1, groups=batch.spread(copies), remember=True)
    at = [Branch(r, t) for r in chains if not lost(r) for t in range(0, len(r.steps), config.every)]
    probes = await batch.go_on([branch for branch in at for _ in range(config.probes)], kind=PROBE)
    for number, (record, turn) in enumerate(at):
        own = probes[number * config.probes : (number + 1) * config.probes]
        returns = [worth(probe, config.unfinished) for probe in own if not lost(probe)]
        if returns:
            record.steps[turn].value = float(np.mean(returns))
        else:
            record.ending, record.fault = Status.ENV_ERROR, f"all probes of turn {turn} were lost: {own[-1].fault}"
    for record in chains:
        fill(record)
    return [*chains, *probes]


def worth(probe: EpisodeRecord, unfinished: float | None) -> float:
    """The return of a probe: the sum of the rewards of its own steps, or `unfinished` if it did not end by itself."""
    if unfinished is not None and probe.ending != Status.DONE:
        return unfinished
    return sum(step.reward for step in probe.own)


def fill(record: EpisodeRecord) -> None:
    """Set the values of the states that were not probed, from the end of the record to its beginning."""
    following = 0.0
    for step in reversed(record.steps):
        if np.isnan(step.value):
            step.value = step.reward + following
        following = step.value
