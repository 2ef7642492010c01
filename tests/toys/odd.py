"""Pays an answer of odd length in each of two turns, so that copies of a task differ under random weights."""

from collections.abc import Sequence

from pydantic import BaseModel

from agentrl.env import Bare
from agentrl.types import Observation, StepResult, Task


class Config(BaseModel, frozen=True, extra="forbid"):
    """count: tasks. first: number of the first."""

    count: int = 8
    first: int = 0


class Odd:
    def reset(self, task: Task) -> Observation:
        self.turns = self.paid = 0
        return Observation(text=f"{task.seed:02d}")

    def step(self, action: str) -> StepResult:
        reward = float(len(action) % 2)
        self.turns, self.paid = self.turns + 1, self.paid + int(reward)
        return StepResult(Observation(text="."), reward, self.turns == 2, False, {"success": self.paid == 2})

    def close(self) -> None:
        pass


def prompt(config: Config) -> Bare:
    return Bare()


def make(config: Config) -> Odd:
    return Odd()


def tasks(config: Config) -> Sequence[Task]:
    numbers = range(config.first, config.first + config.count)
    return [Task(key=f"odd/{i}", env="tests.toys.odd", seed=i) for i in numbers]
