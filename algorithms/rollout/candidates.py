"""Several actions are sampled in each state and one is executed; the others are stored beside it (kind `candidate`).

Formula: `executed = argmax over K candidates of reward`.

Source: AT-GRPO, arXiv:2510.11062 (PettingLLMs): at each turn K candidates are sampled from one state and the best is
executed, a greedy tree; TL-GRPO, arXiv:2601.16480: a group of actions per state, each of which an evaluator scores. A
candidate is scored by carrying it out in a copy of the environment, so its reward is the environment's own, and each
candidate costs a step of the environment. `choose=first` executes the first candidate whatever the rewards are, which
keeps the chain a sample of the policy. Among candidates with equal rewards, `choose=best` executes the earliest. A
candidate that a fault ended is never executed; if faults ended all candidates of a state, the chain is lost.

Credit methods that compare the actions of one state (`role_grpo`, `tl_grpo`) see and train the candidates; all other
methods do not see them.
"""

from typing import Literal

from pydantic import Field

from agentrl.graph import CANDIDATE
from agentrl.rollout import Branch, EpisodeRecord, Expansion, RolloutOptions, adopt, lost
from agentrl.types import Status

FILLS = ("candidate",)
UNEVEN = True


class Config(RolloutOptions, frozen=True):
    """Options.

    Attributes:
        candidates: K, number of candidates per state.
        choose: which candidate is executed: the one with the highest reward (best), or the first one (first).
    """

    candidates: int = Field(4, ge=2, le=1000)
    choose: Literal["best", "first"] = "best"


def leaves(config: Config, copies: int) -> int:
    """Scored episodes per task."""
    return copies


async def rollout(config: Config, batch: Expansion, copies: int) -> list[EpisodeRecord]:
    """See `agentrl.rollout.expansion`. Each chain is followed by the candidates of its states."""
    done: dict[int, EpisodeRecord] = {}  # number of the chain -> the chain
    others: dict[int, list[EpisodeRecord]] = {}  # number of the chain -> candidates that were not executed
    passed: dict[int, list[EpisodeRecord]] = {}  # number of the chain -> its records at earlier steps
    tried = await batch.begin(config.candidates, groups=batch.spread(copies), turns=1, remember=True)
    going = list(range(len(tried) // config.candidates))
    while going:
        ahead: list[tuple[int, EpisodeRecord]] = []
        for place, chain in enumerate(going):
            own = tried[place * config.candidates : (place + 1) * config.candidates]
            best = choose(own, config)
            for record in own:
                record.tree = own[0].tree
            rest = [record for record in own if record is not best and record.own]
            for record in (chained for rival in rest for chained in rival.chains()):
                record.kind = CANDIDATE
            others.setdefault(chain, []).extend(rest)
            if best.ending == Status.OK:
                ahead.append((chain, best))
                passed.setdefault(chain, []).append(best)
            else:
                best.inherited = 0  # all its steps were executed in this chain
                adopt([best], passed.get(chain, []))
                done[chain] = best
        going = [chain for chain, _ in ahead]
        at = [Branch(record, len(record.steps)) for _, record in ahead for _ in range(config.candidates)]
        tried = await batch.go_on(at, turns=1, remember=True)
    return [record for chain in sorted(done) for record in (done[chain], *others[chain])]


def choose(candidates: list[EpisodeRecord], config: Config) -> EpisodeRecord:
    """The candidate to execute."""
    scored = [record for record in candidates if not lost(record)]
    if not scored:
        return candidates[0]
    if config.choose == "first":
        return scored[0]
    return max(scored, key=lambda record: record.steps[-1].reward)
