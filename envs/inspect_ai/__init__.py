"""Tasks of the package inspect_ai, with their scorers as signals, for evaluations (docs/foreign.md).

`task` names a task as for `inspect eval`: FILE.py@TASK or PACKAGE/TASK; `options` are the arguments of the task. A turn
answers a request to the model; after a malformed tool call, the next turn answers the same request. The last step gets
the first value of the first scorer as its reward. `python` is the Python that has the package.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field

from agentrl.env import Prompt
from agentrl.envs._foreign import Options, listed, messages_prompt, program
from agentrl.foreign import ForeignEnv, ForeignProgram
from agentrl.types import Task

WAITS = True  # a step waits for the process that plays
ADAPTS = True
HELD_OUT_OPTIONS: Mapping[str, Any] = MappingProxyType({"split": "all"})


class Config(Options, frozen=True):
    """Which samples of which task are played.

    Attributes:
        task: FILE.py@TASK, or PACKAGE/TASK of an installed package.
        options: the task's arguments, such as env.options.count=10.
        split: train or test: the id of a sample decides its split, and about one sample in five is a test sample. all:
            every sample, which is the default of evaluations.
        solved: smallest reward of a successful episode.
        call_format: the format in which a model writes tool calls.
    """

    task: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    split: Literal["train", "test", "all"] = "train"
    solved: float = 1.0
    call_format: str = "hermes"


def make(config: Config) -> ForeignEnv:
    """An instance; ValueError if the package or the task is missing."""
    return ForeignEnv(_program(config))


def _program(config: Config) -> ForeignProgram:
    if not config.task:
        raise ValueError("env.task is empty: name a task of inspect_ai, such as env.task=my_tasks.py@arithmetic")
    return program(__file__, config, config.model_dump(exclude={"python", "call_format"}))


def tasks(config: Config) -> Sequence[Task]:
    """The samples of the split; ValueError if the task cannot be loaded."""
    return [
        Task(key=f"{config.task}/{key}", env="inspect_ai", seed=index, params={"index": index})
        for index, key in listed(_program(config))
    ]


def kind(task: Task) -> str:
    """The task of inspect_ai."""
    return task.key.rpartition("/")[0]


def benchmark(config: Config) -> str:
    """The name under which results are reported."""
    return f"inspect_ai {config.task}"


def facts(config: Config) -> dict[str, str]:
    """The versions of the packages that played."""
    return _program(config).versions()


def prompt(config: Config) -> Prompt:
    """The messages of the task's solvers, with its tools if the first sample has any."""
    return messages_prompt(_program(config), config.call_format)
