"""A signal shows a letter and a number; one of two words is right for the letter, and the number does not matter.

Its expert `hasty` says the wrong word in every fourth task: a clone of this expert does so too, and what a run learns
beyond the clone comes from rewards.
"""

from collections.abc import Sequence

from pydantic import BaseModel

from agentrl.env import Bare, Env, Move
from agentrl.types import Observation, StepResult, Task

WORDS = ("no", "in")
EXPERTS = ("hasty",)


class Config(BaseModel, frozen=True, extra="forbid"):
    """count: tasks. first: number of the first."""

    count: int = 64
    first: int = 0


class Signal:
    def reset(self, task: Task) -> Observation:
        self.letter = task.seed % 2
        return Observation(text=f"{'AB'[self.letter]}{task.seed:03d}")

    def step(self, action: str) -> StepResult:
        won = action.strip() == WORDS[self.letter]
        return StepResult(Observation(text="."), float(won), True, False, {"success": won})

    def close(self) -> None:
        pass


class Hasty:
    def reset(self, task: Task) -> None:
        self.word = WORDS[(task.seed + (task.seed // 2 % 4 == 0)) % 2]

    def act(self, observation: Observation) -> Move:
        return Move(self.word)


def expert(env: Env, name: str, seed: int) -> Hasty:
    if name not in EXPERTS:
        raise ValueError(f"letter_signal has no expert {name!r}")
    return Hasty()


def prompt(config: Config) -> Bare:
    return Bare()


def make(config: Config) -> Signal:
    return Signal()


def tasks(config: Config) -> Sequence[Task]:
    numbers = range(config.first, config.first + config.count)
    return [Task(key=f"letter_signal/{i}", env="tests.toys.letter_signal", seed=i) for i in numbers]
