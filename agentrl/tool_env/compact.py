"""The prompt of a tool environment in few words, for small models that choose among listed actions."""

import functools
import json
from collections.abc import Sequence
from typing import Any

from agentrl.env import Parsed, Past
from agentrl.tool import Calls, Malformed
from agentrl.tool import action as tool_action
from agentrl.types import Observation, Status

UNLISTED = "this is none of the listed actions"


class Compact:
    """Writes a call as the tool's name and the values of its arguments, `find bolt 3`; a final answer as `answer 42`.

    These words alone do not say which call is meant, so an answer of the model chooses the listed action that has the
    same words. For other words, make a subclass with its own methods `answer` and `plain`.

    Args:
        system: the system message.
    """

    rewords = True

    def __init__(self, system: str = "") -> None:
        self.system = system

    def plain(self, text: str) -> str:
        """The text of an observation as the model reads it."""
        return text

    def first(self, observation: Observation) -> str:
        """The text of the first observation, see `plain`."""
        return self.plain(observation.text)

    def turn(self, observation: Observation) -> str:
        """A space and the results of the tools. After a space, a word is the same token as inside a text."""
        return f" {self.plain(observation.text)}"

    def window(self, first: Observation, past: Sequence[Past], done: int, observation: Observation) -> str:
        """The first message, and one line per past turn: its action and the results."""
        seen = [*(p.observation.text for p in past[1:]), observation.text][: len(past)]
        lines = [f"{self.answer(p.action)} = {self.plain(text)}" for p, text in zip(past, seen, strict=True)]
        return "\n".join([self.first(first), *lines])

    def answer(self, action: str) -> str:
        """The action in few words; see the class."""
        return in_words(action)

    def parse(self, text: str, observation: Observation) -> Parsed:
        """The listed action that has the words of this answer; a malformed call if no listed action has them."""
        wanted = text.strip()
        for action in observation.actions:
            if self.answer(action) == wanted:
                return Parsed(action, True, Status.OK, len(tool_action.read(action).items))
        malformed = Calls(items=(Malformed(message=UNLISTED),))
        return Parsed(tool_action.write(malformed), False, Status.PARSE_ERROR)


@functools.lru_cache(maxsize=100_000)
def in_words(action: str) -> str:
    """An action of `agentrl.tool.action` in few words."""
    turn = tool_action.read(action)
    if turn.answer is not None:
        return f"answer {' '.join(turn.answer.split())}".strip()
    return "; ".join(
        item.message if isinstance(item, Malformed) else " ".join([item.name, *map(_word, item.arguments.values())])
        for item in turn.items
    )


def _word(value: Any) -> str:
    return " ".join(value.split()) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
