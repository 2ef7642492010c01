"""Tasks that fail in every copy begin at a point inside a successful episode; the point moves backwards as the success
rate rises.

Formula: the start moves back by `step` turns when at least the share `rise` of the copies succeeds.

Source: Salimans and Chen, "Learning Montezuma's Revenge from a Single Demonstration", arXiv:1812.03381, Algorithm 1:
episodes start near the end of a demonstration, and the start moves back when at least a share (0.2) of the rollouts
that begin there succeed. R3, arXiv:2402.05808, applies the same idea to language models.

A success is a successful episode of the policy or, with `source = "expert"`, also of the environment's expert, who
plays a task once, after it has failed. A start is the first turns of a success. After the reset, these turns are
carried out again, so that the chain begins in the state to which they lead, with the prompt that the success had there.
The chain needs no importance weight: the policy samples all of its trained answers. All copies of a group begin in the
same state.

If all copies of a task failed `patience` times in a row and a success of the task is stored, the next copies begin at a
start. When the start has moved back to the task's beginning, the copies begin there without help. If all copies then
fail `patience` times in a row again, the task gets its last start again.

Departures: Algorithm 1 has one start for the whole run. Here each task has a start of its own, and a start moves by
whole turns.

Limits: the environment must be deterministic. If the same answers lead to another state, the chain ends with an
env_error whose message says this. A success in which agents were called gives no start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, Field

from agentrl.rollout import Draw, EpisodeRecord, Success, by_group, success_rate
from agentrl.types import Task

PAPER = "Salimans and Chen, arXiv:1812.03381; R3, arXiv:2402.05808"


class Config(BaseModel, frozen=True, extra="forbid"):
    """See the module.

    Attributes:
        source: the starts come from successes of the policy (own), or also from one episode of `warmup.expert` per
            task (expert).
        patience: how many times in a row all copies of a task must fail before the task gets a start.
        first: number of turns from the first start of a task to the end of its success.
        step: number of turns by which the start moves back each time.
        rise: the start moves back when at least this share of the copies succeeds.
        keep: largest number of tasks whose successes are stored; the tasks that were stored first are dropped first.
    """

    source: Literal["own", "expert"] = "own"
    patience: int = Field(1, ge=1)
    first: int = Field(1, ge=1)
    step: int = Field(1, ge=1)
    rise: float = Field(0.2, gt=0, le=1)
    keep: int = Field(10_000, ge=1)


class StartState:
    """See the module.

    Attributes:
        successes: key of a task -> its shortest success so far.
        failed: key -> number of times in a row that all its copies failed from the task's beginning.
        left: key of a task that is helped -> turns from its start to the success's end.
        unsolved: keys of tasks that the expert did not solve.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.successes: dict[str, Success] = {}
        self.failed: dict[str, int] = {}
        self.left: dict[str, int] = {}
        self.unsolved: set[str] = set()

    def wanted(self, draws: Sequence[Draw]) -> list[Task]:
        """The tasks that the expert is to play: they failed `patience` times in a row and have no success yet."""
        if self.config.source == "own":
            return []
        tasks = {draw.task.key: draw.task for draw in draws if self._stuck(draw.task.key)}
        return [task for key, task in tasks.items() if key not in self.successes and key not in self.unsolved]

    def shown(self, records: Sequence[EpisodeRecord]) -> None:
        """Keep the expert's successes, and note the tasks that the expert did not solve."""
        for record in records:
            if not self._add(record):
                self.unsolved.add(record.task.key)

    def begin(self, draws: Sequence[Draw]) -> list[Draw]:
        """The draws; those of helped tasks begin at the task's start."""
        return [self._begin(draw) for draw in draws]

    def _begin(self, draw: Draw) -> Draw:
        key = draw.task.key
        success = self.successes.get(key)
        if success is None or len(success.turns) < 2 or not self._stuck(key):
            return draw  # an episode of one turn has no later point to start from
        left = min(self.left.setdefault(key, self.config.first), len(success.turns) - 1)
        return replace(draw, opening=success.opening(len(success.turns) - left))

    def _stuck(self, key: str) -> bool:
        return self.failed.get(key, 0) >= self.config.patience

    def observe(self, records: Sequence[EpisodeRecord]) -> None:
        """Move the starts, and keep the shortest successes."""
        for own in by_group(records).values():
            key, rate = own[0].task.key, success_rate(own)
            if not own[0].opening:
                self.failed[key] = self.failed.get(key, 0) + 1 if rate == 0 else 0
            elif rate >= self.config.rise:
                self._move_back(key)
            for record in own:
                self._add(record)
        for store in (self.successes, self.failed, self.left):
            for key in [*store][: max(0, len(store) - self.config.keep)]:
                del store[key]

    def _move_back(self, key: str) -> None:
        """Move the start of a task back; a start that reaches the task's beginning is no longer used."""
        left = self.left.get(key, self.config.first) + self.config.step
        if key in self.successes and left >= len(self.successes[key].turns):
            self.failed[key] = 0
        else:
            self.left[key] = left

    def _add(self, record: EpisodeRecord) -> bool:
        """Keep a success if it is the task's shortest; False if the record is no success."""
        success, key = Success.of(record), record.task.key
        if success is None:
            return False
        before = self.successes.get(key)
        if before is None or len(success.turns) < len(before.turns):
            self.successes[key] = success
        return True

    def state_dict(self) -> dict[str, Any]:
        """The starts and successes, as a checkpoint stores them."""
        return {
            "successes": {key: success.dump() for key, success in self.successes.items()},
            "failed": dict(self.failed),
            "left": dict(self.left),
            "unsolved": sorted(self.unsolved),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the starts and successes of a checkpoint."""
        self.successes = {key: Success.load(rows) for key, rows in state["successes"].items()}
        self.failed = {key: int(n) for key, n in state["failed"].items()}
        self.left = {key: int(n) for key, n in state["left"].items()}
        self.unsolved = set(state["unsolved"])


def make(config: Config, seed: int) -> StartState:
    """See `agentrl.rollout.guide`; nothing is drawn at random."""
    return StartState(config)


def expert(config: Config) -> bool:
    """Does the guide ask for episodes of the expert?"""
    return config.source == "expert"
