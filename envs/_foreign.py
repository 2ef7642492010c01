"""What the environments of other packages share: their interpreter's option, and prompts for a single answer."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agentrl.chat import tagged
from agentrl.env import Bare, ForeignProgram, Parsed
from agentrl.types import Observation, Status


class Options(BaseModel, frozen=True, extra="forbid"):
    """python: the Python that has the package, such as venv/bin/python; empty: the one that runs agentrl."""

    python: str = ""


def program(file: str, config: Options, options: dict[str, Any]) -> ForeignProgram:
    """The program of an environment's `__init__` file: its name is the folder's, its adapter the file adapter.py."""
    folder = Path(file).resolve().parent
    return ForeignProgram.of(folder.name, folder / "adapter.py", config.python, options)


class Answer(Bare):
    """The whole reply is the answer: for small models."""


class TaggedAnswer(Bare):
    """The answer is what the last pair of <answer> and </answer> holds; a reply without a pair is no answer."""

    system = "Think first if you need to, then give the final answer, and nothing else, between <answer> and </answer>."

    def answer(self, action: str) -> str:
        """The answer in its tags."""
        return f"<answer>{action}</answer>"

    def parse(self, text: str, observation: Observation) -> Parsed:
        """The last answer in tags."""
        found = [one.content.strip() for one in tagged(text, "answer")]
        return Parsed(found[-1], True, Status.OK) if found else Parsed("", False, Status.PARSE_ERROR)
