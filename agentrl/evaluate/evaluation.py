"""Evaluation of a policy: plays every task of a panel, counts every ending, and gives each success rate an interval."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from agentrl.config import Entry
from agentrl.env import EnvironmentFile, benchmark_of, facts_of, kind_of, panel_hash
from agentrl.evaluate import failures
from agentrl.evaluate.stats import wilson
from agentrl.rollout import EpisodeRecord, Player, Start, TooManyFaults, play_starts, stop_on_faults, too_many
from agentrl.types import LEFT_OUT, UNSCORED, Status, Task

LIMITS = (
    Status.TURN_LIMIT,
    Status.TOKEN_LIMIT,
    Status.TURN_TOKEN_LIMIT,
    Status.CALL_LIMIT,
    Status.DEPTH_LIMIT,
    Status.TIME_LIMIT,
    Status.CONTEXT_LIMIT,
)
LOST = Status.ENV_ERROR.name.lower()
OVERLONG = Status.OVERLONG_PROMPT.name.lower()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One episode of a report.

    Attributes:
        task: key of the task.
        kind: type of the task, for the success rates per type.
        success: did the episode succeed?
        reward: sum of the rewards.
        steps: number of steps.
        invalid: number of steps whose answer was not valid (`StepRecord.valid`): not in the right format, or with an
            action that is not allowed.
        tokens: number of tokens sampled in the episode and by the agents that it called, failed attempts
            included; for an endpoint, the number that it reports for the episode.
        ending: name of the `Status` that ended the episode, in lower case.
        fault: the fault of the environment or the endpoint that ended the episode; empty if none did.
        seconds: wall-clock time.
        usage: the counts that the policy reports, summed over all attempts.
        measures: the entries of the last `info` that the environment's `MEASURES` names, 0 if an entry is absent.
        calls: number of tool calls that the answers asked for.
        tool_errors: number of steps in which a tool failed.
        signals: signals by name, each summed over the steps.
        sample: number of the task's sample, from 0.
        reason: why the last request got no answer, if the missing answer ended the episode.
        failures: kind of failed answer -> its `agentrl.evaluate.failures.Example`.
        said: the beginning of the first answer that is not empty; empty if the episode has a tool call.
    """

    task: str
    kind: str
    success: bool
    reward: float
    steps: int
    invalid: int
    tokens: int
    ending: str
    fault: str
    seconds: float
    usage: Mapping[str, float]
    measures: Mapping[str, float] = field(default_factory=dict)
    calls: int = 0
    tool_errors: int = 0
    signals: Mapping[str, float] = field(default_factory=dict)
    sample: int = 0
    reason: str = ""
    failures: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    said: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Results of a policy on a panel of tasks.

    Attributes:
        benchmark: the name under which the results are reported.
        policy: description of the policy.
        outcomes: the episodes, in the order of the panel; the samples of a task follow one another.
        panel: hash of the panel's task keys (`panel_hash`).
        facts: further facts of the environment, each with its name.
        samples: how often each task was played.
        wall_seconds: wall-clock time of the evaluation.
    """

    benchmark: str
    policy: Mapping[str, object]
    outcomes: Sequence[Outcome]
    panel: str
    facts: Mapping[str, str] = field(default_factory=dict)
    samples: int = 1
    wall_seconds: float = 0.0

    @property
    def scored(self) -> list[Outcome]:
        """The episodes that no environment error ended and whose first prompt fits."""
        return [o for o in self.outcomes if o.ending not in UNSCORED]

    def success(self) -> np.ndarray:
        """[n] float, 1 for success, over the scored episodes in panel order."""
        return np.array([float(o.success) for o in self.scored])

    def summary(self) -> dict[str, Any]:
        """The object that `agentrl eval --json` prints."""
        scored = self.scored
        won = sum(o.success for o in scored)
        kinds = sorted({o.kind for o in scored})
        usage: Counter[str] = Counter()
        faults = dict(Counter(o.fault for o in self.outcomes if o.ending == LOST).most_common())
        overlong = dict(Counter(o.reason for o in self.outcomes if o.ending == OVERLONG).most_common())
        for outcome in self.outcomes:
            usage.update(outcome.usage)
        return {
            "benchmark": self.benchmark,
            "policy": dict(self.policy),
            "panel": self.panel,
            "facts": dict(self.facts),
            "samples": self.samples,
            "episodes": len(scored),
            "success_rate": won / len(scored) if scored else 0.0,
            "interval": _interval(scored),
            **(_by_sample(scored) if self.samples > 1 else {}),
            "mean_reward": _mean([o.reward for o in scored]),
            "measures": {k: _mean([o.measures[k] for o in scored]) for k in (scored[0].measures if scored else ())},
            "per_type": {k: _rate([o for o in scored if o.kind == k]) for k in kinds},
            "mean_steps": _mean([o.steps for o in scored]),
            "mean_steps_success": _mean([o.steps for o in scored if o.success]),
            "invalid_share": sum(o.invalid for o in scored) / max(1, sum(o.steps for o in scored)),
            "mean_calls": _mean([o.calls for o in scored]),
            "tool_error_share": sum(o.tool_errors for o in scored) / max(1, sum(o.steps for o in scored)),
            "signals": {name: _mean([o.signals.get(name, 0.0) for o in scored]) for name in _signals(scored)},
            "endings": dict(sorted(Counter(o.ending for o in self.outcomes).items())),
            "truncated_share": _mean([o.ending in {s.name.lower() for s in LIMITS} for o in scored]),
            "env_errors": sum(o.ending == LOST for o in self.outcomes),
            "failures": failures.summary(self.outcomes, str(self.policy.get("tool_calls", ""))),
            "tokens": sum(o.tokens for o in self.outcomes),
            "usage": dict(usage),
            "wall_seconds": self.wall_seconds,
            **({"faults": faults} if faults else {}),
            **({"overlong_prompts": overlong} if overlong else {}),
        }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0


def _signals(outcomes: Sequence[Outcome]) -> list[str]:
    return sorted({name for outcome in outcomes for name in outcome.signals})


def _rate(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    won = sum(o.success for o in outcomes)
    return {"episodes": len(outcomes), "success_rate": won / len(outcomes), "interval": _interval(outcomes)}


def _per_task(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Success rate of each task."""
    won: dict[str, list[bool]] = {}
    for one in outcomes:
        won.setdefault(one.task, []).append(one.success)
    return {task: sum(successes) / len(successes) for task, successes in won.items()}


def _interval(outcomes: Sequence[Outcome]) -> list[float]:
    """95% interval of the success rate over tasks. The samples of a task are not independent, so their mean counts as
    one observation."""
    rates = _per_task(outcomes)
    return list(wilson(sum(rates.values()), len(rates)))


def _by_sample(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Success rate of each sample (over the tasks), and of each task (over its samples)."""
    numbers = sorted({o.sample for o in outcomes})
    rates = [_mean([float(o.success) for o in outcomes if o.sample == number]) for number in numbers]
    return {"per_sample": rates, "per_task": _per_task(outcomes)}


def outcome(record: EpisodeRecord, kind: str, measures: Sequence[str] = ()) -> Outcome:
    """The outcome of one record."""
    last = record.steps[-1].info if record.steps else {}
    signals: Counter[str] = Counter()
    for step in record.steps:
        signals.update(step.info.get("signals", {}))
    return Outcome(
        task=record.task.key,
        kind=kind,
        success=record.success and record.ending not in LEFT_OUT,
        reward=sum(step.reward for step in record.steps),
        steps=len(record.steps),
        invalid=sum(not step.valid for step in record.steps),
        tokens=record.tokens or int(record.usage.get("completion_tokens", 0)),
        ending=record.ending.name.lower(),
        fault=record.fault,
        seconds=record.seconds,
        usage=record.usage,
        measures={name: float(last.get(name, 0.0)) for name in measures},
        calls=sum(step.calls for step in record.steps),
        tool_errors=sum(step.status == Status.TOOL_ERROR for step in record.steps),
        signals=dict(signals),
        sample=record.copy,
        reason=record.reason,
        failures=failures.failures_of(record),
        said=failures.first_words(record),
    )


async def evaluate(
    player: Player,
    entry: Entry[EnvironmentFile],
    tasks: Sequence[Task],
    policy: Mapping[str, object],
    *,
    iteration: int = 0,
    samples: int = 1,
    known: Mapping[tuple[int, int], Outcome] = MappingProxyType({}),
    on_episode: Callable[[EpisodeRecord, Outcome], None] | None = None,
) -> Report:
    """Play every task.

    Args:
        player: plays the episodes; its seed and stage are part of the noise keys, the seeds of sampling.
        entry: the environment, which gives the report its names, types of tasks, measures and facts.
        tasks: the panel.
        policy: description of the policy for the report.
        iteration: part of the noise keys.
        samples: how often each task is played; the samples differ in their noise keys.
        known: (position of the task, number of the sample) -> outcome, for episodes that were played before.
        on_episode: called when an episode ends, with its record and its outcome.

    Raises:
        TooManyFaults: more than `Limits.fault_share` of all episodes are lost. It is raised as soon as this is certain.
            Without `known`, it is also raised at the end if environment errors ended more than this share of all
            chains, chains of called agents included.
        ValueError: the first prompts of more than `Limits.fault_share` of all episodes do not fit the model's context.
    """
    began, outcomes, lost, overlong = time.monotonic(), dict(known), 0, 0
    episodes, share = len(tasks) * samples, player.limits.fault_share
    starts = [
        Start(task=task, group=group, copy=copy, session=group * samples + copy)
        for group, task in enumerate(tasks)
        for copy in range(samples)
        if (group, copy) not in known
    ]

    def ended(record: EpisodeRecord) -> None:
        nonlocal lost, overlong
        made = outcome(record, kind_of(entry, record.task), entry.hooks.measures)
        outcomes[record.group, record.copy] = made
        if on_episode is not None:
            on_episode(record, made)
        lost += made.ending == LOST
        if lost > share * episodes:
            raise TooManyFaults(_too_many(lost, episodes, share, made))
        overlong += made.ending == OVERLONG
        if overlong > share * episodes:
            raise ValueError(too_many(overlong, episodes, "episodes", share, made.reason))

    records = await play_starts(player, starts, iteration=iteration, on_episode=ended)
    if not known:
        stop_on_faults(records, player.limits.fault_share)
    return Report(
        benchmark=benchmark_of(entry),
        policy=policy,
        outcomes=[outcomes[key] for key in sorted(outcomes)],
        panel=panel_hash([task.key for task in tasks]),
        facts=facts_of(entry),
        samples=samples,
        wall_seconds=time.monotonic() - began,
    )


def _too_many(lost: int, episodes: int, share: float, last: Outcome) -> str:
    return (
        f"{lost} of {episodes} episodes were lost to the environment or to the policy's endpoint, the limit is "
        f"{share:.0%}: repair the environment or the endpoint, or raise limits.fault_share; the last fault, on task "
        f"{last.task}: {last.fault}"
    )
