"""The corridor of `tests.toys.walk`; at the start of some tasks hangs a long sign, so their first prompt is long."""

from collections.abc import Sequence

from agentrl.env import Env
from agentrl.types import Observation, Task
from tests.toys import walk

EXPERTS = walk.EXPERTS


class Config(walk.Config, frozen=True):
    """long: every how manieth task has a long sign, from the first task on; 0 for none. words: words of a sign."""

    long: int = 2
    words: int = 400


class Signs(walk.Walk):
    config: Config

    def reset(self, task: Task) -> Observation:
        super().reset(task)
        if not (self.config.long and task.seed % self.config.long == 0):
            return self.observe()
        self.words = "right " * self.config.words
        return self.observe()


def expert(env: Env, name: str, seed: int) -> walk.Straight:
    return walk.expert(env, name, seed)


def make(config: Config) -> Signs:
    return Signs(config)


def tasks(config: Config) -> Sequence[Task]:
    numbers = range(config.first, config.first + config.count)
    return [Task(key=f"signs/{i}", env="tests.toys.signs", seed=i) for i in numbers]
