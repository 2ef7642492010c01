"""Environments of the package verifiers (0.4), with their rubrics as signals (docs/foreign.md).

`taskset` names an installed taskset, or a module in the working folder; `options` are the options of this taskset. A
turn answers a request to the model; after a malformed tool call, the next turn answers the same request. The last step
gets the weighted sum of verifiers' rewards as its reward; each reward and each metric is a signal. `python` is the
Python that has the package.
"""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from agentrl.env import Prompt
from agentrl.envs._foreign import Options, listed, messages_prompt, program
from agentrl.foreign import ForeignEnv, ForeignProgram
from agentrl.types import Task

WAITS = True  # a step waits for the process that plays
ADAPTS = True


class Config(Options, frozen=True):
    """Which tasks are played in which environment of the package.

    Attributes:
        taskset: name of an installed taskset package, or of a module in the working folder.
        id: name of an environment to play the taskset in; empty: the taskset's own.
        options: options of the taskset's configuration, such as env.options.difficulty=2.
        count: largest number of tasks that are read from the taskset; later tasks are never played. `split` then keeps
            some of the tasks that were read.
        split: train or test: the key of a task decides its split, and about one task in five is a test task. all: every
            task, for tasksets that have splits of their own.
        solved: smallest reward of a successful episode.
        call_format: the format in which a model writes tool calls.
    """

    taskset: str = ""
    id: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    count: int = Field(1000, ge=1)
    split: Literal["train", "test", "all"] = "train"
    solved: float = 1.0
    call_format: str = "hermes"


def make(config: Config) -> ForeignEnv:
    """An instance; ValueError if the package or the taskset is missing."""
    return ForeignEnv(_program(config))


def _program(config: Config) -> ForeignProgram:
    if not config.taskset:
        raise ValueError("env.taskset is empty: name an installed taskset of verifiers, such as env.taskset=my-tasks")
    return program(__file__, config, config.model_dump(exclude={"python", "call_format"}))


def tasks(config: Config) -> Sequence[Task]:
    """The tasks of the split, among the first `count` tasks; ValueError if the taskset cannot be loaded."""
    return [
        Task(key=f"{config.taskset}/{key[:16]}", env="verifiers", seed=index, params={"index": index})
        for index, key in listed(_program(config))
    ]


def kind(task: Task) -> str:
    """The taskset."""
    return task.key.rpartition("/")[0]


def benchmark(config: Config) -> str:
    """The name under which results are reported."""
    return f"verifiers {config.taskset}"


def facts(config: Config) -> dict[str, str]:
    """The versions of the packages that played."""
    return _program(config).versions()


def prompt(config: Config) -> Prompt:
    """The messages of the environment, with its tools if the first task has any."""
    return messages_prompt(_program(config), config.call_format)
