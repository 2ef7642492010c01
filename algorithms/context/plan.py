"""The whole chat, with answers in HiPER's form: keep or switch the sub-goal, name the sub-goal, then act.

Formula: `answer = switch + sub-goal + action`, on the prompts of `full`.

Source: HiPER, arXiv:2602.16165: `<switch>KEEP or SWITCH</switch><subgoal>...</subgoal><action>...</action>`. A switch
begins a segment of `credit.name=hiper`. The wording of the instruction is ours. The chat is that of `full`, so the
model finds the current sub-goal in its own earlier answers.

A policy that writes its answers freely writes this text itself. With `engine.actions=admissible`, and in
demonstrations, this context writes the answer of each action. For an action that matches `starts`, it writes SWITCH
and the action's text as the sub-goal. For every other action, it writes KEEP and no sub-goal.
"""

import functools
import re
from collections.abc import Sequence
from typing import Any

from pydantic import Field, field_validator
from pydantic_core import SchemaError, SchemaValidator, core_schema

from agentrl.algorithms._subgoals import Subgoals
from agentrl.algorithms.context import full
from agentrl.chat import first_tagged, without_thoughts
from agentrl.env import Parsed, PastTurn, Prompt
from agentrl.rollout import Ask, History
from agentrl.types import Observation, Status


def filler(config: "Config") -> Subgoals:
    """The filler that finds the sub-goals in the answers."""
    return Subgoals()


class Config(full.Config, frozen=True):
    """instruction: text after the first observation, which describes the form of an answer. starts: regular expression
    that is searched for in the actions of demonstrations and in admissible actions; an action in which it is found
    begins a sub-goal. Empty: no action does."""

    instruction: str = (
        "Work towards sub-goals. In each answer first say whether you go on with the current sub-goal or begin a new "
        "one, <switch>KEEP</switch> or <switch>SWITCH</switch>, then state it, <subgoal>...</subgoal>, then act, "
        "<action>...</action>."
    )
    starts: str = Field("", max_length=1000)

    @field_validator("starts")
    @classmethod
    def _expression(cls, given: str) -> str:
        try:
            re.compile(given)
            _pattern(given)
        except re.error as error:
            raise ValueError(f"{given!r} is no regular expression: {error}") from None
        except SchemaError:
            raise ValueError(
                f"{given!r} needs look-around or a reference to a group, whose time may grow as 2^length: "
                "write it without them"
            ) from None
        return given


@functools.lru_cache(maxsize=16)
def _pattern(expression: str) -> SchemaValidator:
    """A regular expression that is searched for in linear time."""
    return SchemaValidator(core_schema.str_schema(pattern=expression))


def ask(config: Config, prompt: Prompt, history: History) -> Ask:
    """The chat of `full`."""
    return full.ask(full.Config(observation_tokens=config.observation_tokens), prompt, history)


def words(config: Config) -> Sequence[str]:
    """The words that this context adds to prompts, for a new tokenizer."""
    return (config.instruction, "<switch>KEEP</switch><subgoal></subgoal><action></action>SWITCH")


def speak(config: Config, prompt: Prompt) -> "Planned":
    """The environment's prompt, wrapped in the form of the plan."""
    return Planned(config, prompt)


class Planned:
    """The environment's prompt, whose answers also have a switch and a sub-goal."""

    def __init__(self, config: Config, prompt: Prompt) -> None:
        self._config, self._prompt, self.system = config, prompt, prompt.system

    def __getattr__(self, name: str) -> Any:
        """Any other attribute of the environment's prompt, such as `stop`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._prompt, name)

    def first(self, observation: Observation) -> str:
        """The first message and the instruction."""
        return f"{self._prompt.first(observation)}\n{self._config.instruction}"

    def turn(self, observation: Observation) -> str:
        """The environment's message of a turn."""
        return self._prompt.turn(observation)

    def window(self, first: Observation, past: Sequence[PastTurn], done: int, observation: Observation) -> str:
        """The environment's window of the history, and the instruction."""
        return f"{self._prompt.window(first, past, done, observation)}\n{self._config.instruction}"

    def answer(self, action: str) -> str:
        """The action between its tags, after the switch and, if it begins a sub-goal, the sub-goal."""
        said = self._prompt.answer(action)
        body = said if first_tagged(said, ("action",)) else f"<action>{said}</action>"
        if self._config.starts and _pattern(self._config.starts).isinstance_python(action):
            return f"<switch>SWITCH</switch><subgoal>{action}</subgoal>{body}"
        return f"<switch>KEEP</switch>{body}"

    def parse(self, text: str, observation: Observation) -> Parsed:
        """The action between the tags as the environment reads it; an answer without the tags is not valid."""
        words = without_thoughts(text)
        found = first_tagged(words, ("action",))
        if found is None:
            return Parsed(words.strip()[-80:], False, Status.PARSE_ERROR)
        own = first_tagged(self._prompt.answer("x"), ("action",)) is not None
        return self._prompt.parse(text if own else found.content, observation)
