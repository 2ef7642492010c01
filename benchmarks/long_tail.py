"""An environment for benchmarks of throughput: it answers at once with some words, and ends at the action `done`."""

from collections.abc import Sequence

from pydantic import BaseModel

from agentrl.env import Observation, StepResult, Task

WORDS = tuple(f"{a}{b}" for a in ("ka", "lo", "mi", "nu", "pe", "ra", "so", "ti") for b in ("ban", "dor", "fel", "gim"))


class Config(BaseModel, frozen=True, extra="forbid"):
    """count: number of tasks. first: number of the first task. words: length of an observation."""

    count: int = 1_000_000
    first: int = 0
    words: int = 40


class LongTail:
    def __init__(self, config: Config) -> None:
        self.config = config

    def reset(self, task: Task) -> Observation:
        self.seed, self.turn = task.seed, 0
        return self.observe()

    def observe(self) -> Observation:
        start = self.seed * 7 + self.turn * 13
        return Observation(text=" ".join(WORDS[(start + i * i) % len(WORDS)] for i in range(self.config.words)))

    def step(self, action: str) -> StepResult:
        self.turn += 1
        done = action == "done"
        won = done and (self.seed + self.turn) % 2 == 0
        return StepResult(self.observe(), float(won), done, False, {"success": won})

    def close(self) -> None:
        pass


class Tasks(Sequence[Task]):
    def __init__(self, config: Config) -> None:
        self.config = config

    def __len__(self) -> int:
        return self.config.count

    def __getitem__(self, index: int) -> Task:
        number = self.config.first + index
        return Task(key=f"long_tail/{number}", env="long_tail", seed=number)


def make(config: Config) -> LongTail:
    return LongTail(config)


def tasks(config: Config) -> Sequence[Task]:
    return Tasks(config)
