"""Any Gymnasium environment that can be put in words, by its id: `agentrl eval gymnasium_text env.id=...`.

`id` is what `gymnasium.make` takes, such as FrozenLake-v1, Blackjack-v1 or package:Name-v0. Actions of a Discrete
space are its names or numbers, listed with each observation (of `action_mask` in `info`, if there); those of a
Text space are sent as they are. Observations are words (Text), numbers (Discrete, MultiDiscrete, MultiBinary, small
Box), or Tuple and Dict of these; an environment that renders as text shows its picture too. A task is a seed.
"""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentrl.envs.gymnasium_text.config import HELD_OUT, Config
from agentrl.types import Task

if TYPE_CHECKING:
    from agentrl.envs.gymnasium_text.environment import GymnasiumText

__all__ = ["MARKOV", "Config", "benchmark", "kind", "make", "tasks"]


def make(config: Config) -> "GymnasiumText":
    """An instance."""
    from agentrl.envs.gymnasium_text.environment import GymnasiumText  # imports Gymnasium

    return GymnasiumText(config)


def tasks(config: Config) -> Sequence[Task]:
    """One task per seed; ValueError if the environment cannot be made or put in words."""
    _examine(config.model_dump_json())
    first = HELD_OUT if config.split == "test" else 0
    return [
        Task(key=f"{config.id}/{seed}", env="gymnasium_text", seed=seed) for seed in range(first, first + config.count)
    ]


def kind(task: Task) -> str:
    """The environment's id."""
    return task.key.rpartition("/")[0]


def benchmark(config: Config) -> str:
    """The name under which results are reported."""
    return f"gymnasium {config.id}"


def MARKOV(config: Config) -> bool:
    """Are the observations numbers? Then they show the whole state, as in Gymnasium's environments; texts may not."""
    return not _examine(config.model_dump_json())


@functools.lru_cache(maxsize=64)
def _examine(options: str) -> bool:
    """Does it observe words? An instance is made for the answer, which also finds mistakes in the options."""
    instance = make(Config.model_validate_json(options))
    instance.close()
    return instance.observes_words
