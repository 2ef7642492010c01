"""A lock of several dials: each shows a letter, and one of four turns is right for it. The lock says at the end alone.

Which turn is right for a letter is the same in every lock, so it can be learnt. A wrong turn is not noticed before the
last dial: chance opens a lock of n dials in one of 4^n episodes. With `wrong` a wrong turn leaves the lock at its dial
(`stay`) or turns it back to the dial before (`back`), and the episode ends when the lock opens: long episodes in which
states come again and again.
"""

import random
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from agentrl.env import Env, Move
from agentrl.types import Observation, StepResult, Task

ACTIONS = ("north", "east", "south", "west")
LETTERS = "abcdefghijkl"
RIGHT = {letter: ACTIONS[place * 7 % 11 % 4] for place, letter in enumerate(LETTERS)}
EXPERTS = ("opens",)
MARKOV = True


class Config(BaseModel, frozen=True, extra="forbid"):
    """count: tasks. first: number of the first. dials: fewest and most of a lock. wrong: what a wrong turn does."""

    count: int = 4
    first: int = 0
    dials: tuple[int, int] = Field((3, 3))
    wrong: Literal["hidden", "stay", "back"] = "hidden"


class Lock:
    def __init__(self, config: Config) -> None:
        self.config, self.letters, self.place, self.right = config, "", 0, True

    def reset(self, task: Task) -> Observation:
        rng = random.Random(task.seed)
        size = rng.randint(*self.config.dials)
        self.letters, self.place, self.right = "".join(rng.choice(LETTERS) for _ in range(size)), 0, True
        return self.observe()

    def observe(self) -> Observation:
        shown = self.letters[self.place] if self.place < len(self.letters) else "end"
        left = len(self.letters) - self.place
        return Observation(
            text=f"{left} to go, it shows {shown} .", actions=ACTIONS, state_key=self.letters[: self.place]
        )

    def step(self, action: str) -> StepResult:
        right = self.place < len(self.letters) and action == RIGHT[self.letters[self.place]]
        if right or self.config.wrong == "hidden":
            self.right &= right
            self.place += 1
        elif self.config.wrong == "back":
            self.place = max(self.place - 1, 0)
        ended = self.place >= len(self.letters)
        won = ended and self.right
        return StepResult(self.observe(), float(won), ended, False, {"success": won})

    def snapshot(self) -> tuple[str, int, bool]:
        return self.letters, self.place, self.right

    def restore(self, snapshot: tuple[str, int, bool]) -> Observation:
        self.letters, self.place, self.right = snapshot
        return self.observe()

    def close(self) -> None:
        pass


class Opens:
    def reset(self, task: Task) -> None:
        pass

    def act(self, observation: Observation) -> Move:
        letter = observation.text.split()[-2]
        return Move(RIGHT.get(letter, ACTIONS[0]))


def expert(env: Env, name: str, seed: int) -> Opens:
    if name not in EXPERTS:
        raise ValueError(f"lock has no expert {name!r}")
    return Opens()


def make(config: Config) -> Lock:
    return Lock(config)


def tasks(config: Config) -> Sequence[Task]:
    return [
        Task(key=f"lock/{i}", env="tests.toys.lock", seed=i) for i in range(config.first, config.first + config.count)
    ]
