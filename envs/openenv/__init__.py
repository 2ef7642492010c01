"""The environment of an OpenEnv server, played through the package's own client (docs/foreign.md).

`url` is the server's address. The server's schema decides how an action is written: as a call of a tool, as the text of
one field, or as JSON. One session of the server is one episode. `python` is the Python that has the package openenv.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from agentrl.env import Env, Plain, Prompt, Verdict
from agentrl.envs._foreign import Options, program
from agentrl.foreign import ForeignEnv, ForeignProgram
from agentrl.tool import load_format
from agentrl.tool_env import ToolWords
from agentrl.types import Task

WAITS = True  # a step waits for the process that plays
ADAPTS = True
HELD_OUT = 1 << 30  # first seed of the test split


class Config(Options, frozen=True):
    """Which server, and what the parts of its messages mean.

    Attributes:
        url: address of the server, such as http://127.0.0.1:8000.
        token_variable: name of the environment variable that holds the server's bearer token; empty if the server
            needs no token.
        reset: further arguments of the server's reset, such as env.reset.difficulty=2.
        count: number of tasks of the split, one per seed.
        split: train and test have different seeds.
        unseeded: also play a server that begins differently each time it gets the same seed.
        field: name of the field of an action that gets the text of a reply. Empty: the only field that the schema
            requires or, if it requires none, its only field; fields in `fixed` do not count. If there is no such single
            field, the reply must be a JSON object.
        fixed: fields that every action has, with their values. Calls of tools do not get them.
        text: names of the fields of an observation that are shown; empty: all except metadata, tools and the list of
            admissible actions. The result of a tool is always shown as a whole.
        choices: name of the field of an observation that lists the admissible actions.
        state_fields: names of the fields of the server's state that identify a state. Empty: the text of the
            observation, together with all fields of the state except episode_id and step_count.
        solved: smallest sum of rewards of a successful episode. If the metadata of the episode's last result has
            `success` (true or false), that value decides instead.
        answer_s: largest number of seconds that the server may take for an answer, and that an episode waits for a
            free session. After this time, the episode ends with a fault.
        call_format: the format in which a model writes tool calls.
    """

    url: str = ""
    token_variable: str = ""
    reset: dict[str, Any] = Field(default_factory=dict)
    count: int = Field(1000, ge=1, le=HELD_OUT)
    split: Literal["train", "test"] = "train"
    unseeded: bool = False
    field: str = ""
    fixed: dict[str, Any] = Field(default_factory=dict)
    text: tuple[str, ...] = ()
    choices: str = "actions"
    state_fields: tuple[str, ...] = ()
    solved: float = 1.0
    answer_s: float = Field(50.0, gt=0)
    call_format: str = "hermes"


class OpenEnv(ForeignEnv):
    """An environment whose episodes are sessions of a server."""

    def cut(self) -> Verdict:
        """End the session of an episode that a limit ended, so that another episode can use the session."""
        info = self.ask("cut")
        self.close()
        return Verdict(0.0, info)


class Words(Plain):
    """The text of the observation as the user message; `system` says how actions are written."""

    def __init__(self, system: str) -> None:
        self.system = system


def _program(config: Config) -> ForeignProgram:
    if not config.url:
        raise ValueError(
            "env.url is empty: give the address of an OpenEnv server, such as env.url=http://127.0.0.1:8000"
        )
    return program(__file__, config, config.model_dump(exclude={"python", "count", "split", "unseeded", "call_format"}))


def make(config: Config) -> Env:
    """An instance; ValueError if the package is missing or no server answers."""
    return OpenEnv(_program(config))


@functools.lru_cache(maxsize=64)
def _described(listing: ForeignProgram) -> Mapping[str, Any]:
    return dict(listing.ask("describe"))


@functools.lru_cache(maxsize=64)
def _examined(listing: ForeignProgram) -> Mapping[str, bool]:
    return dict(listing.ask("examine"))


@functools.lru_cache(maxsize=64)
def _tools(listing: ForeignProgram) -> tuple[Any, ...]:
    return tuple(listing.ask("tools"))


def tasks(config: Config) -> Sequence[Task]:
    """One task per seed.

    Raises:
        ValueError: the server begins differently each time it gets the same seed, and `unseeded` is false.
    """
    listing = _program(config)
    if not config.unseeded and not _examined(listing)["repeats"]:
        raise ValueError(
            f"env.url = {config.url!r}: the server gives another start each time the same seed is given, so the "
            "copies of a task would not begin alike: name the fields that do not change in env.text and "
            "env.state_fields, or set env.unseeded=true to evaluate without seeds"
        )
    name = _described(listing)["name"]
    first = HELD_OUT if config.split == "test" else 0
    return [Task(key=f"{name}/{seed}", env="openenv", seed=seed) for seed in range(first, first + config.count)]


def kind(task: Task) -> str:
    """The environment's name."""
    return task.key.rpartition("/")[0]


def benchmark(config: Config) -> str:
    """The name under which results are reported."""
    return f"openenv {_described(_program(config))['name']}"


def facts(config: Config) -> dict[str, str]:
    """The versions of the packages that played, and whether the seed decides how an episode begins (`seeds`)."""
    listing = _program(config)
    found = _examined(listing)
    seeds = "the same start again" if found["repeats"] else "another start each time"
    varied = "another seed, another start" if found["varies"] else "every seed, the same start"
    return {**listing.versions(), "seeds": f"{seeds}; {varied}"}


def prompt(config: Config) -> Prompt:
    """The messages of the environment, with its tools or the form of its actions."""
    listing = _program(config)
    found = _described(listing)
    if found["form"] == "tools":
        schemas = _tools(listing)
        return ToolWords(load_format(config.call_format, schemas), schemas)
    if found["form"] == "field":
        return Words("")
    return Words(f"Reply with one JSON object that fits this schema, and nothing else: {json.dumps(found['schema'])}")
