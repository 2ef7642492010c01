"""What a rollout writes down, and the step graph made from it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentrl.graph import PLAYED, success_of
from agentrl.rollout.branch import Point
from agentrl.types import Generation, Observation, Status, Task

NUMERIC = (bool, int, float, np.bool_, np.integer, np.floating)


@dataclass(kw_only=True, eq=False)
class StepRecord:
    """One step. `added` [T] are the prompt tokens this step adds; `continues` says whether they extend the
    episode's previous path; `value` is a Monte Carlo estimate of its state, NaN where there is none; `calls` are
    the tool calls its answer asks for; `rewrites` says that the answer was for the model's own memory."""

    observation: Observation
    added: np.ndarray
    continues: bool
    generation: Generation
    action: str
    valid: bool
    status: Status
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    value: float = math.nan
    calls: int = 0
    rewrites: bool = False


@dataclass(kw_only=True, eq=False)
class EpisodeRecord:
    """One agent's chain in one rollout, from the task's beginning to its end.

    A branch holds the very step objects that it shares with the chain it left, as `steps[:inherited]`.

    Attributes:
        task: what was played.
        group: index of the task in its batch; copies of one task share it.
        copy: which copy of the task.
        agent, policy: names.
        caller: the step that called this agent; None for the agent the task was given to.
        called: the chains of agents that this one called, in the order of the calls.
        tree: which tree of its group; None for one of its own.
        kind: PLAYED, CANDIDATE or PROBE: of the steps that are not shared.
        steps: the steps, in time order.
        inherited: how many of the first steps another chain played.
        final: the last observation; its tokens `tail` are never trained. tail_continues: they extend the last step's
            path, and are no prompt of their own.
        ending: how it ended; OK for a chain that was stopped and can go on.
        fault: what the environment did wrong, for the report.
        attempts: tries it took (1 if the environment never failed).
        seconds: wall-clock time; kept out of the graph.
        tokens, calls: tokens sampled and actions carried out for it (each tool call of an answer), lost tries included,
            shared steps not.
        usage: what its generations say they used, summed, lost tries included.
        replayed: actions carried out again to reach its branch point.
        points: by turn, the moments it can be played on from, where they were asked for.
    """

    task: Task
    group: int
    copy: int
    agent: str = "agent"
    policy: str = "policy"
    caller: "StepRecord | None" = None
    called: "list[EpisodeRecord]" = field(default_factory=list)
    tree: int | None = None
    kind: int = PLAYED
    steps: list[StepRecord] = field(default_factory=list)
    inherited: int = 0
    final: Observation | None = None
    tail: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    tail_continues: bool = True
    ending: Status = Status.DONE
    fault: str = ""
    attempts: int = 1
    seconds: float = 0.0
    tokens: int = 0
    usage: dict[str, float] = field(default_factory=dict)
    calls: int = 0
    replayed: int = 0
    points: dict[int, Point] = field(default_factory=dict)

    def spend(self, generation: Generation) -> None:
        """Count what an answer cost."""
        self.tokens += len(generation.token_ids)
        for name, count in generation.usage.items():
            self.usage[name] = self.usage.get(name, 0.0) + count

    @property
    def own(self) -> list[StepRecord]:
        """The steps no other chain played."""
        return self.steps[self.inherited :]

    @property
    def score(self) -> float:
        """All rewards on its path."""
        return sum(step.reward for step in self.steps)

    def chains(self) -> "Iterator[EpisodeRecord]":
        """This chain and those of the agents it called, callers first."""
        yield self
        for chain in self.called:
            yield from chain.chains()

    @property
    def success(self) -> bool:
        """See `agentrl.graph.success_of`."""
        word = as_number(self.steps[-1].info.get("success")) if self.steps else math.nan
        return bool(success_of(word, self.score))


def as_number(value: object) -> float:
    """An entry of a step's `info` as a number; NaN for what is none."""
    if not isinstance(value, NUMERIC):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an integer beyond the floats
        return math.inf if value > 0 else -math.inf


def same_state(observation: Observation) -> str:
    """The string whose equality means "the same state"."""
    return observation.state_key or observation.text
