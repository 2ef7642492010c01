"""Templates of the files that `agentrl new` writes. The command replaces NAME, TITLE and VERSION in them."""

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
    """One object per episode: its attributes are the state of the episode; its public methods with types are tools."""

    def reset(self, low: int, high: int, seed: int) -> str:
        self.low, self.high = low, high  # the number lies between them
        self.numbers = range(low, high + 1)
        self.number = low + seed % len(self.numbers)
        return f"I think of a number from {low} to {high}. Find it with compare, then answer with the number alone."

    def compare(self, guess: int) -> str:
        """Compare a guess with the number.

        Args:
            guess: what you think the number is
        """
        if self.number == guess:
            self.low = self.high = guess
            return "right"
        if self.number < guess:
            self.high = min(self.high, guess - 1)
            return "lower"
        self.low = max(self.low, guess + 1)
        return "higher"

    def reward(self, answer: str) -> float:
        return float(answer == str(self.number))

    def _actions(self) -> list[str]:
        """The admissible actions: calls as in Python, and final answers. Small models choose among these."""
        return [*(f"compare({number})" for number in self.numbers), *map(str, self.numbers)]

    def _expert(self) -> str:
        """The next action of the expert that [warmup] clones; unlike the agent, it may read every attribute."""
        return str(self.low) if self.low == self.high else f"compare({(self.low + self.high) // 2})"


ROWS = [{"id": i, "low": 1, "high": 8, "seed": i * 7919} for i in range(100)]
Config, make, tasks, prompt = environment(TITLE, rows=ROWS, name="NAME")
'''

ENV_RECIPE = """\
# A small model made from scratch learns NAME on two CPU cores, in about three minutes:
#     agentrl train NAME.toml
# `agentrl train --explain` lists all other options; those that are left out here get values for this kind of model.

[run]
iterations = 30

[env]
name = "agentrl_NAME"      # the module in this folder; after pip install, the name NAME is enough
split = "train"            # the key of a row decides its split

[eval.env]
split = "test"

[model.new]
hidden = 64
heads = 2
kv_heads = 1
intermediate = 128

[limits]
turns = 8

[warmup]
expert = "careless:0.2"    # the expert with one action of five at random, so that rewards can still improve the clone
"""

ENV_README = """\
# NAME

| file | what it is |
| --- | --- |
| `agentrl_NAME.py` | the environment: first message, tools, reward, listed actions, an expert |
| `test_NAME.py` | its tests, `python -m pytest` |
| `NAME.toml` | a recipe, `agentrl train NAME.toml` |
| `pyproject.toml` | after `pip install --no-build-isolation -e .`, agentrl finds NAME by its name in every folder |

```
agentrl check agentrl_NAME                    # does it keep the promises of an environment?
agentrl play agentrl_NAME                     # play a task by hand
agentrl eval agentrl_NAME --policy expert     # the expert, on all tasks
agentrl train NAME.toml                       # clones the expert, then learns from rewards
agentrl eval agentrl_NAME --policy runs/NAME --out run.json                 # on the tasks that it was not trained on
agentrl eval agentrl_NAME --policy random --split test --out random.json    # on the same tasks
agentrl compare run.json random.json
```

The run prints the success rate on held-out tasks before the warm-up (start), after it (clone) and after training (end).
agentrl's docs/environments.md lists everything that the class may have.
"""

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


def test_the_demonstrator_always_wins():
    config = env.Config()
    for task in env.tasks(config)[:8]:
        one = env.make(config)
        player, observation, over = env.make.expert(one, "expert", 0), one.reset(task), False
        player.reset(task)
        while not over:
            observation, reward, over, _, _ = one.step(player.act(observation).action)
        assert reward == 1.0
'''

TOOL = '''\
"""TITLE: say here in one line what the tool does."""

from pydantic import BaseModel, Field


class Config(BaseModel, frozen=True, extra="forbid"):
    """most: longest text in characters."""

    most: int = Field(1000, ge=1)


class TITLE:
    """One object for all episodes of a process; if it keeps state of one episode, add a method `reset(self)`."""

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
        "NAME.toml": ENV_RECIPE,
        "README.md": ENV_README,
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
agentrl play agentrl_{name}        # then: agentrl check agentrl_{name}, agentrl eval agentrl_{name} --policy expert
agentrl train {name}.toml          # learns in about three minutes; README.md says more
pip install --no-build-isolation -e .    # agentrl then finds it as {name} in every folder""",
    "tool": """\
cd {folder} && python -m pytest    # its tests
pip install --no-build-isolation -e {folder}
environment(..., tools=["{name}"])   # in the file of a tool environment, see docs/tools.md""",
}
