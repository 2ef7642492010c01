"""Any Gymnasium environment that can be put in words, by its id: `agentrl eval gymnasium_text env.id=...`.

`id` is an id of `gymnasium.make`, such as FrozenLake-v1, Blackjack-v1 or package:Name-v0. The agent writes an action of
a Discrete space by its name or number, and each observation lists the actions. If `info` has an `action_mask`, the list
has only the actions that the mask allows. An action of a Text space is sent as it is written. Observations are texts
(Text), numbers (Discrete, MultiDiscrete, MultiBinary, Box of at most 1000 numbers), or Tuple and Dict of these. If an
environment can render as text, its observations show this picture too. A task is a seed.
"""

import functools
from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING

from agentrl.envs.gymnasium_text.config import HELD_OUT, Config
from agentrl.types import Task

if TYPE_CHECKING:
    from agentrl.envs.gymnasium_text.environment import GymnasiumText

__all__ = ["ADAPTS", "MARKOV", "Config", "benchmark", "facts", "kind", "make", "tasks"]

ADAPTS = True


def make(config: Config) -> "GymnasiumText":
    """An instance."""
    from agentrl.envs.gymnasium_text.environment import GymnasiumText  # imports Gymnasium

    return GymnasiumText(config)


def tasks(config: Config) -> Sequence[Task]:
    """One task per seed; ValueError if the environment cannot be made, or its spaces cannot be put in words."""
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


def facts(config: Config) -> dict[str, str]:
    """The version of Gymnasium."""
    return {"gymnasium": metadata.version("gymnasium")}


def MARKOV(config: Config) -> bool:
    """True if no part of an observation is a text.

    Numbers are taken to show the whole state, as they do in Gymnasium's own environments; a text may not show it.
    """
    return not _examine(config.model_dump_json())


@functools.lru_cache(maxsize=64)
def _examine(options: str) -> bool:
    """Is some part of an observation a text? An instance is made to see; ValueError for mistakes in the options."""
    instance = make(Config.model_validate_json(options))
    instance.close()
    return instance.observes_words
