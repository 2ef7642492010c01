"""The prompts in words: `say WORDS`, and calls as in Python or in few words."""

import re
from collections.abc import Sequence
from typing import Any

from agentrl import tool_env
from agentrl.env import Parsed, ShownTools, spoken
from agentrl.envs._worded import OneLine, cached, unread, written
from agentrl.envs.desk.counter import ASKS, CONFIRM, DONE, REFUSE, RESPOND, TELL
from agentrl.tool import Call, Calls, Malformed, action as tool_action
from agentrl.types import Observation, Status

PHRASES = {**{said: f"ask {what}" for what, said in ASKS.items()}, CONFIRM: "confirm", DONE: "done", REFUSE: "refuse"}
TOLD = re.compile(re.escape(TELL).replace(re.escape("{value}"), "(.*)"), re.S)


class Instruct(OneLine):
    """One line per turn, for language models: the system message holds the rules of the desk and what may be written.

    Args:
        policy: the rules of the desk, which the agent must obey.
    """

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.system = (
            f"{policy}\n\nReply with one line only: `say WORDS` to speak to the customer, or one call of a tool."
        )

    def show(self, observation: Observation, chat: Any) -> ShownTools:
        """The system message with the tools of the observation."""
        return ShownTools(f"{self.system} Tools:\n{described(observation.tools)}" if observation.tools else self.system)

    def answer(self, action: str) -> str:
        """`say WORDS`, or the call as in Python."""
        return in_words(action)

    def parse(self, text: str, observation: Observation) -> Parsed:
        """The first line: words to the customer, or a call."""
        line = spoken(text).partition("\n")[0].lstrip("> ").strip()
        word, _, rest = line.partition(" ")
        if word.lower().removesuffix(":") == "say" and rest.strip():
            return Parsed(tool_action.call(RESPOND, content=rest.strip()), True, Status.OK, 1)
        turn = tool_action.read(line.strip("`"), observation.tools)
        if turn.items and not any(isinstance(item, Malformed) for item in turn.items):
            return Parsed(tool_action.write(Calls(items=turn.items)), True, Status.OK, len(turn.items))
        wrong = next((item.message for item in turn.items if isinstance(item, Malformed)), "write say WORDS, or a call")
        return unread(wrong)


class Compact(tool_env.Compact):
    """Few words, for small models. An answer chooses the listed action with the same words."""

    def plain(self, text: str) -> str:
        """The words of the customer or of a tool, without signs."""
        return plain(text)

    def answer(self, action: str) -> str:
        """The action in few words."""
        return _brief(action)


def in_words(action: str) -> str:
    """`say WORDS`, or calls as in Python, joined by semicolons."""
    return written(action, "say", _call)


def _call(item: Call) -> str:
    if item.name == RESPOND:
        return f"say {' '.join(str(item.arguments.get('content', '')).split())}"
    return f"{item.name}({', '.join(f'{name}={value!r}' for name, value in item.arguments.items())})"


def brief(action: str) -> str:
    """An action in few words: `ask email`, `tell pending`, `cancel pending order 17 no longer needed`."""
    turn = tool_action.read(action)
    item = turn.items[0] if turn.items else None
    if not isinstance(item, Call):
        return in_words(action)
    if item.name == RESPOND:
        content = str(item.arguments.get("content", ""))
        told = TOLD.fullmatch(content)
        return f"tell {told[1]}" if told else PHRASES.get(content) or f"say {plain(content)}"
    values = (" ".join(map(str, v)) if isinstance(v, list) else str(v) for v in item.arguments.values())
    return plain(" ".join([item.name, *values]))


_brief = cached(brief)


def plain(text: str) -> str:
    """The text without signs: `ada klein` for ada.klein@example.com, `17` for #W17, `lamp red` for lamp-red."""
    text = re.sub(r"\b([BW])(?=\d)", " ", text.replace("@example.com", " "))
    return " ".join(re.sub(r"[^\w:?]|_", " ", text).split()).lower()


def described(tools: Sequence[Any]) -> str:
    """The tools, one per line, as in Python."""
    lines = []
    for tool in tools:
        function = tool.get("function", tool)
        names = ", ".join(function.get("parameters", {}).get("properties", {}))
        lines.append(f"{function['name']}({names}): {function.get('description', '').splitlines()[0]}")
    return "\n".join(lines)
