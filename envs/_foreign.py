"""Common parts of environments of other packages: the option that names their Python, their tasks, and prompts."""

import functools
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agentrl.chat import tagged, without_thoughts
from agentrl.env import Bare, Parsed, Prompt
from agentrl.foreign import ForeignProgram
from agentrl.tool import load_format
from agentrl.tool_env import ToolWords
from agentrl.types import Observation, Status


class Options(BaseModel, frozen=True, extra="forbid"):
    """python: the Python that has the package, such as venv/bin/python; empty: the one that runs agentrl."""

    python: str = ""


def program(file: str, config: Options, options: dict[str, Any]) -> ForeignProgram:
    """The program of the environment whose `__init__` file is `file`.

    The program has the name of the folder of this file; its adapter is the file adapter.py in this folder.
    """
    folder = Path(file).resolve().parent
    return ForeignProgram.of(folder.name, folder / "adapter.py", config.python, options)


@functools.lru_cache(maxsize=64)
def listed(listing: ForeignProgram) -> tuple[tuple[int, str], ...]:
    """(index, key) of every task of a program."""
    return tuple((index, key) for index, key in listing.ask("tasks"))


@functools.lru_cache(maxsize=64)
def _tools(listing: ForeignProgram) -> tuple[Any, ...]:
    """The schemas of the tools of the first task; none if it has no tools."""
    tasks = listed(listing)
    return tuple(listing.ask("tools", tasks[0][0])) if tasks else ()


def messages_prompt(listing: ForeignProgram, call_format: str) -> Prompt:
    """The messages of a program that sends requests to a model, with its tools if the first task has any."""
    schemas = _tools(listing)
    return ToolWords(load_format(call_format, schemas), schemas) if schemas else Bare()


class Answer(Bare):
    """The whole reply is the answer: for small models."""


class TaggedAnswer(Bare):
    """The answer is the content of the last pair of <answer> and </answer>; a reply without such a pair is invalid."""

    system = "Think first if you need to, then give the final answer, and nothing else, between <answer> and </answer>."

    def answer(self, action: str) -> str:
        """The reply that gives this answer: the answer between its tags."""
        return f"<answer>{action}</answer>"

    def parse(self, text: str, observation: Observation) -> Parsed:
        """The content of the last pair of tags; PARSE_ERROR if there is no pair."""
        found = [one.content.strip() for one in tagged(without_thoughts(text), "answer")]
        return Parsed(found[-1], True, Status.OK) if found else Parsed("", False, Status.PARSE_ERROR)
