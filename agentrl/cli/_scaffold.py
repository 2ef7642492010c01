"""Templates of the files that `agentrl new` writes; it replaces NAME, TITLE and VERSION."""

PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "agentrl-NAME"
version = "0.1.0"
description = "TITLE for agentrl"
requires-python = ">=3.11"
dependencies = ["agentrl-stepgraph>=VERSION"]

[project.entry-points."agentrl.KIND"]
NAME = "agentrl_NAME"

[tool.setuptools]
py-modules = ["agentrl_NAME"]
"""

ENV = '''\
"""TITLE: say here in one line what the agent has to do."""

from agentrl.tool_env import environment


class TITLE:
    """One object per episode: its attributes are the episode's state, its typed public methods are the tools."""

    def reset(self, low: int, high: int, seed: int) -> str:
        self.number = low + seed % (high - low + 1)
        return f"I think of a number from {low} to {high}. Find it with compare, then answer with the number alone."

    def compare(self, guess: int) -> str:
        """Compare a guess with the number.

        Args:
            guess: what you think the number is
        """
        return "lower" if self.number < guess else "higher" if self.number > guess else "right"

    def reward(self, answer: str) -> float:
        return float(answer == str(self.number))


ROWS = [{"id": i, "low": 1, "high": 8, "seed": i * 7919} for i in range(100)]
Config, make, tasks, prompt = environment(TITLE, rows=ROWS, name="NAME")
'''

ENV_TEST = '''\
"""Tests of NAME; they need no installation."""

import agentrl_NAME as env

from agentrl.gym import check_env


def test_it_keeps_the_promises_of_an_environment():
    assert check_env(env) == []


def test_an_episode():
    config = env.Config()
    task = env.tasks(config)[3]
    one = env.make(config)
    assert "from 1 to 8" in one.reset(task).text
    answers = {guess: one.step(f"compare({guess})").observation.text for guess in range(1, 9)}
    (number,) = [guess for guess, text in answers.items() if text == "right"]
    last = one.step(str(number))
    assert last.reward == 1.0 and last.terminated
'''

TOOL = '''\
"""TITLE: say here in one line what the tool does."""

from pydantic import BaseModel, Field


class Config(BaseModel, frozen=True, extra="forbid"):
    """most: longest text in characters."""

    most: int = Field(1000, ge=1)


class TITLE:
    """Shared by all episodes of a process; add `reset(self)` if it keeps state for one episode."""

    name = "NAME"

    def __init__(self, config: Config) -> None:
        self.config = config

    def __call__(self, text: str) -> str:
        """Count the words of a text.

        Args:
            text: the text to count words in
        """
        if len(text) > self.config.most:
            raise ValueError(f"the text has {len(text)} characters, at most {self.config.most} are allowed")
        return str(len(text.split()))


def make(config: Config) -> TITLE:
    return TITLE(config)
'''

TOOL_TEST = '''\
"""Tests of NAME; they need no installation."""

import agentrl_NAME as tool
import pytest

from agentrl.tool import tool_spec


def test_a_call():
    assert tool.make(tool.Config())("one two three") == "3"


def test_its_schema_is_complete_and_strict():
    spec = tool_spec(tool.make(tool.Config()))
    assert spec.name == "NAME" and spec.schema["function"]["description"]
    with pytest.raises(ValueError, match="'text' is 3"):
        spec.check({"text": 3})


def test_a_text_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match="at most 5"):
        tool.make(tool.Config(most=5))("too long")
'''

FILES = {
    "env": {
        "pyproject.toml": PYPROJECT.replace("KIND", "envs"),
        "agentrl_NAME.py": ENV,
        "test_NAME.py": ENV_TEST,
    },
    "tool": {
        "pyproject.toml": PYPROJECT.replace("KIND", "tools"),
        "agentrl_NAME.py": TOOL,
        "test_NAME.py": TOOL_TEST,
    },
}

STEPS = {
    "env": """\
cd {folder} && python -m pytest    # its tests
pip install --no-build-isolation -e {folder}
agentrl play {name}                # then: agentrl check {name}, agentrl eval {name} --policy random""",
    "tool": """\
cd {folder} && python -m pytest    # its tests
pip install --no-build-isolation -e {folder}
environment(..., tools=["{name}"])   # in the file of a tool environment, see docs/tools.md""",
}
