"""Arithmetic word problems with a calculator: which numbers to combine next, and when to answer.

Stories of a few events are generated in graded difficulty. Training, validation and test stories never have the same
set of numbers, and stories of two or more events never have the same order of events. So a model cannot answer a test
story from memory.

| piece | module |
| --- | --- |
| stories and their parts | `stories` |
| the tool and the reward: a class of a few lines | `problem` |
| environment, prompts, tasks | `environment` |
| players | `players` |
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from agentrl.env import Env
from agentrl.envs.calculator.environment import Problems, prompt, read_row, tasks
from agentrl.envs.calculator.players import EXPERTS, Player, make_expert
from agentrl.envs.calculator.problem import Config
from agentrl.types import Task

__all__ = [
    "EXPERTS", "GYMNASIUM_IDS", "HELD_OUT_OPTIONS", "Config", "benchmark", "entities", "expert", "kind", "make",
    "prompt", "read_row", "tasks",
]  # fmt: skip

STORY = {"events", "min_events", "noise", "largest", "count", "display", "brief", "show"}  # options that shape a story
GYMNASIUM_IDS: Mapping[str, Mapping[str, Any]] = MappingProxyType({"agentrl/Calculator-v0": {}})
HELD_OUT_OPTIONS: Mapping[str, Any] = MappingProxyType({"split": "test"})
MOST_ENTITIES = 4  # most digits of the display for which every number is one token


def SMALL_MODEL(config: Config) -> Mapping[str, Any]:
    """The compact prompt, and short stories with small numbers unless the recipe sets an option of the stories."""
    if config.rows or config.model_fields_set & STORY:
        return {"prompt": "compact"}
    easy = {"min_events": 1, "noise": 1, "largest": 20, "count": 4000, "display": 2, "brief": True, "show": "lines"}
    return {"prompt": "compact", **easy}


def make(config: Config) -> Problems:
    """An instance."""
    return Problems(config)


def expert(env: Env, name: str, seed: int) -> Player:
    """The player called `name` for this instance; see `agentrl.envs.calculator.players`."""
    return make_expert(env, name, seed)


def entities(config: Config) -> Sequence[str]:
    """Every number that fits on a small display; each becomes one token of a model made from scratch."""
    if config.prompt == "chat" or not 0 < config.display <= MOST_ENTITIES:
        return ()
    return [str(number) for number in range(10**config.display)]


def kind(task: Task) -> str:
    """The number of events of a story; tables of results have one row per number."""
    return f"{len(task.params['events'])} events" if "events" in task.params else "problems"


def benchmark(config: Config) -> str:
    """What is played, in words: the settings of the generated problems, or the name of the file of problems."""
    if config.rows:
        return config.rows
    form = "brief, " * config.brief + "line by line, " * (config.show == "lines")
    events = f"{config.min_events}-{config.events}" if config.min_events else str(config.events)
    told = f"calculator, {form}{events} events, {config.noise} noise, numbers to {config.largest}, {config.split}"
    return f"{told}, {config.display} digits" if config.display else told
