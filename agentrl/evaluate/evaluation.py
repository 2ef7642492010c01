"""Evaluation of a policy: every task of a panel is played once and every ending is counted; rates have intervals."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentrl.config import Entry
from agentrl.env import EnvironmentFile, benchmark_of, facts_of, kind_of, panel_hash
from agentrl.evaluate.stats import wilson
from agentrl.rollout import EpisodeRecord, Player, play
from agentrl.types import Status, Task

LIMITS = (
    Status.TURN_LIMIT,
    Status.TOKEN_LIMIT,
    Status.TURN_TOKEN_LIMIT,
    Status.CALL_LIMIT,
    Status.DEPTH_LIMIT,
    Status.TIME_LIMIT,
)


ENV_ERROR = Status.ENV_ERROR.name.lower()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One episode of a report.

    Attributes:
        task: key of the task.
        kind: type of the task, for the success rates per type.
        success: did the episode succeed?
        reward: sum of the rewards.
        steps: number of steps.
        invalid: number of steps whose answer had no valid action.
        tokens: tokens sampled, in tries that the environment spoiled too.
        ending: name of the `Status` that ended the episode, in lower case.
        fault: the environment's fault; empty if it did not fail.
        seconds: wall-clock time.
        usage: the policy's own counts, over all tries.
        measures: the entries of the last `info` that the environment's `MEASURES` names, 0 if an entry is absent.
        calls: tool calls that the answers asked for.
        tool_errors: number of steps in which a tool failed.
        signals: rewards by name, summed over the steps.
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


@dataclass(frozen=True, kw_only=True)
class Report:
    """Results of a policy on a panel of tasks, each played once."""

    benchmark: str
    policy: Mapping[str, object]
    outcomes: Sequence[Outcome]
    panel: str
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def scored(self) -> list[Outcome]:
        """The episodes in which the environment did not fail."""
        return [o for o in self.outcomes if o.ending != ENV_ERROR]

    def success(self) -> np.ndarray:
        """[n] float, 1 for success, over the scored episodes in panel order."""
        return np.array([float(o.success) for o in self.scored])

    def summary(self) -> dict[str, Any]:
        """The object that `agentrl eval --json` prints."""
        scored = self.scored
        won = sum(o.success for o in scored)
        kinds = sorted({o.kind for o in scored})
        usage: Counter[str] = Counter()
        faults = dict(Counter(o.fault for o in self.outcomes if o.ending == ENV_ERROR).most_common())
        for outcome in self.outcomes:
            usage.update(outcome.usage)
        return {
            "benchmark": self.benchmark,
            "policy": dict(self.policy),
            "panel": self.panel,
            "facts": dict(self.facts),
            "episodes": len(scored),
            "success_rate": won / len(scored) if scored else 0.0,
            "interval": list(wilson(won, len(scored))),
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
            "env_errors": len(self.outcomes) - len(scored),
            "tokens": sum(o.tokens for o in self.outcomes),
            "usage": dict(usage),
            "seconds": sum(o.seconds for o in self.outcomes),
            **({"faults": faults} if faults else {}),
        }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0


def _signals(outcomes: Sequence[Outcome]) -> list[str]:
    return sorted({name for outcome in outcomes for name in outcome.signals})


def _rate(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    won = sum(o.success for o in outcomes)
    n = len(outcomes)
    return {"episodes": n, "success_rate": won / n, "interval": list(wilson(won, n))}


def outcome(record: EpisodeRecord, kind: str, measures: Sequence[str] = ()) -> Outcome:
    """The outcome of one record."""
    last = record.steps[-1].info if record.steps else {}
    signals: Counter[str] = Counter()
    for step in record.steps:
        signals.update(step.info.get("signals", {}))
    return Outcome(
        task=record.task.key,
        kind=kind,
        success=record.success and record.ending != Status.ENV_ERROR,
        reward=sum(step.reward for step in record.steps),
        steps=len(record.steps),
        invalid=sum(not step.valid for step in record.steps),
        tokens=record.tokens,
        ending=record.ending.name.lower(),
        fault=record.fault,
        seconds=record.seconds,
        usage=record.usage,
        measures={name: float(last.get(name, 0.0)) for name in measures},
        calls=sum(step.calls for step in record.steps),
        tool_errors=sum(step.status == Status.TOOL_ERROR for step in record.steps),
        signals=dict(signals),
    )


async def evaluate(
    player: Player,
    entry: Entry[EnvironmentFile],
    tasks: Sequence[Task],
    policy: Mapping[str, object],
    *,
    iteration: int = 0,
    on_episode: Any = None,
) -> Report:
    """Play every task once.

    Args:
        player: plays the episodes; its seed and stage are part of the noise keys.
        entry: the environment, for labels.
        tasks: the panel.
        policy: description of the policy for the report.
        iteration: part of the noise keys.
        on_episode: called with each finished record (progress).
    """
    records = await play(player, tasks, copies=1, iteration=iteration, on_episode=on_episode)
    return Report(
        benchmark=benchmark_of(entry),
        policy=policy,
        outcomes=[outcome(r, kind_of(entry, r.task), entry.hooks.measures) for r in records],
        panel=panel_hash([task.key for task in tasks]),
        facts=facts_of(entry),
    )
