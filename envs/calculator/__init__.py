"""Arithmetic word problems with a calculator: which numbers to combine next, and when to answer.

Stories of one or more events are generated; options set how hard they are. The stories are divided into a training, a
validation and a test part. No set of numbers occurs in two parts. No order of events occurs in two parts either, except
in stories of one event. So a model cannot answer a test story from memory.

| piece | module |
| --- | --- |
| stories and their parts | `stories` |
| options, the tool, the reward | `problem` |
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
    "ERRING",
    "EXPERTS", "GYMNASIUM_IDS", "HELD_OUT_OPTIONS", "Config", "benchmark", "entities", "expert", "kind", "make",
    "prompt", "read_row", "tasks",
]  # fmt: skip

STORY = {"events", "min_events", "noise", "largest", "count", "display", "brief", "show"}  # of generated stories
ERRING = {"hasty": 1, "careless": 1}
GYMNASIUM_IDS: Mapping[str, Mapping[str, Any]] = MappingProxyType({"agentrl/Calculator-v0": {}})
HELD_OUT_OPTIONS: Mapping[str, Any] = MappingProxyType({"split": "test"})
MOST_ENTITIES = 4  # largest display, in digits, for which every number becomes one token


def SMALL_MODEL(config: Config) -> Mapping[str, Any]:
    """The compact prompt; and short stories with small numbers, unless the recipe sets `rows` or an option in STORY."""
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
    """Every number that fits on the display; each becomes one token of a model made from scratch.

    Empty with the prompt `chat`, without a display limit, and for displays of more than MOST_ENTITIES digits.
    """
    if config.prompt == "chat" or not 0 < config.display <= MOST_ENTITIES:
        return ()
    return [str(number) for number in range(10**config.display)]


def kind(task: Task) -> str:
    """The kind of a task in tables of results: `2 events` for a story of two events, `problems` for rows of a file."""
    return f"{len(task.params['events'])} events" if "events" in task.params else "problems"


def benchmark(config: Config) -> str:
    """What is played, in words: the settings of the generated problems, or the name of the file of problems."""
    if config.rows:
        return config.rows
    form = "brief, " * config.brief + "line by line, " * (config.show == "lines")
    events = f"{config.min_events}-{config.events}" if config.min_events else str(config.events)
    told = f"calculator, {form}{events} events, {config.noise} noise, numbers to {config.largest}, {config.split}"
    return f"{told}, {config.display} digits" if config.display else told
