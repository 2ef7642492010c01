"""The task of `pages.py` as an environment of agentrl."""

from collections.abc import Sequence

import pages
from pydantic import BaseModel

from agentrl.env import Observation, StepResult, Task


class Config(BaseModel, frozen=True, extra="forbid"):
    """count: number of tasks. first: number of the first task. words: length of a page."""

    count: int = 4
    first: int = 0
    words: int = 60


class Pages:
    def __init__(self, config: Config) -> None:
        self.config = config

    def reset(self, task: Task) -> Observation:
        self.task, self.answers = task.seed, list[str]()
        return self.observe()

    def observe(self) -> Observation:
        return Observation(text=pages.page(self.task, len(self.answers), self.config.words))

    def step(self, action: str) -> StepResult:
        self.answers.append(action)
        over = pages.stops(action) or len(self.answers) == pages.ANSWERS
        paid = pages.reward(self.task, self.answers) if over else 0.0
        return StepResult(self.observe(), paid, over, False, {"success": paid == 1.0})

    def close(self) -> None:
        pass


def make(config: Config) -> Pages:
    return Pages(config)


def tasks(config: Config) -> Sequence[Task]:
    return [Task(key=f"pages/{n}", env="pages", seed=n) for n in range(config.first, config.first + config.count)]
