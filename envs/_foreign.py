"""Common parts of environments of other packages: the option that names their Python, and prompts for one answer."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agentrl.chat import tagged
from agentrl.env import Bare, Parsed
from agentrl.foreign import ForeignProgram
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
        found = [one.content.strip() for one in tagged(text, "answer")]
        return Parsed(found[-1], True, Status.OK) if found else Parsed("", False, Status.PARSE_ERROR)
