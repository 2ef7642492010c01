"""Chains, and Monte Carlo values of their states from probes that are scored and never trained.

Formula: `V(s) = mean return of K continuations from s`.

Source: VinePPO, arXiv:2410.01679, section 4: V(s_t) is the mean return of K fresh continuations from s_t. With `every`
= m only every m-th state is probed. A state in between has the value V = r + V(next), which gives its step the
advantage 0, so that the advantage of all m steps is on the first of them. The states after an episode's last estimate
get their values in the same way. Official code (McGill-NLP/VinePPO): K = 9, and continuations cut off by a limit get a
penalty, here `unfinished`. A probe in which the environment fails is left out of the mean; a chain with a state whose
probes all failed is lost.
"""

import numpy as np
from pydantic import Field

from agentrl.graph import PROBE
from agentrl.rollout import Branch, EpisodeRecord, Expansion, RolloutOptions, lost
from agentrl.types import Status

FILLS = ("value",)
UNEVEN = True


class Config(RolloutOptions, frozen=True):
    """probes: continuations per state. every: turns between probed states. unfinished: return of a probe that a limit
    ended; None takes the sum of its rewards."""

    probes: int = Field(9, ge=1, le=10_000)
    every: int = Field(1, ge=1)
    unfinished: float | None = None


def leaves(config: Config, copies: int) -> int:
    """Scored episodes per task."""
    return copies


async def rollout(config: Config, batch: Expansion, copies: int) -> list[EpisodeRecord]:
    """See `agentrl.rollout.expansion`. Probes follow the chains."""
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
    """The return of a continuation: its own rewards."""
    if unfinished is not None and probe.ending != Status.DONE:
        return unfinished
    return sum(step.reward for step in probe.own)


def fill(record: EpisodeRecord) -> None:
    """Values of the states between two estimates, and after the last one."""
    following = 0.0
    for step in reversed(record.steps):
        if np.isnan(step.value):
            step.value = step.reward + following
        following = step.value
