"""Pays for answers of odd length, in each of two turns, so that random words already earn different rewards.

Answers are free text, as a training service samples them. The expert `careless` answers with an even length at every
third task.
"""

from collections.abc import Sequence

from pydantic import BaseModel, Field

from agentrl.env import Bare, Env, Move
from agentrl.types import Observation, StepResult, Task

LENGTH = 2  # turns
EXPERTS = ("careless",)
ODD, EVEN = "one", "none"


class Config(BaseModel, frozen=True, extra="forbid"):
    """first, count: number of the first task, and how many there are."""

    first: int = Field(0, ge=0)
    count: int = Field(1000, ge=1)


class OddAnswers:
    """See the module."""

    def __init__(self) -> None:
        self.turns = self.paid = self.number = 0

    def reset(self, task: Task) -> Observation:
        """The number of the task."""
        self.turns, self.paid, self.number = 0, 0, task.seed
        return Observation(text=f"{task.seed:03d}")

    def step(self, action: str) -> StepResult:
        """Half a point for an odd length."""
        odd = len(action) % 2
        self.turns, self.paid = self.turns + 1, self.paid + odd
        over = self.turns == LENGTH
        return StepResult(Observation(text="go on"), odd / LENGTH, over, False, {"success": self.paid == LENGTH})

    def close(self) -> None:
        """Nothing to release."""


class Careless:
    """See the module."""

    def reset(self, task: Task) -> None:
        """The word for the task."""
        self.word = ODD if task.seed % 3 else EVEN

    def act(self, observation: Observation) -> Move:
        """The word."""
        return Move(self.word)


def expert(env: Env, name: str, seed: int) -> Careless:
    """The only expert."""
    return Careless()


def prompt(config: Config) -> Bare:
    """The observation alone."""
    return Bare()


def make(config: Config) -> OddAnswers:
    """An instance."""
    return OddAnswers()


def tasks(config: Config) -> Sequence[Task]:
    """Tasks that differ in their numbers alone."""
    numbers = range(config.first, config.first + config.count)
    return [Task(key=f"odd/{i}", env="benchmarks.reliability.odd_answers", seed=i) for i in numbers]
