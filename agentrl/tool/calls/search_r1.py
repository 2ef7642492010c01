"""Search-R1 tags: `<search>query</search>` is a call, `<answer>text</answer>` is the final answer.

Only the first pair of tags in the text counts.

Source: Search-R1 (arXiv:2503.09516) and its released generation loop. Besides `search`, the name of any other tool
that takes one text can be a tag.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.chat import first_tagged
from agentrl.tool.calls import (
    Call,
    Calls,
    Format,
    Malformed,
    Span,
    calls_start,
    function_of,
    text_arguments,
)

INVALID = (
    "My previous action is invalid. "
    "If I want to search, I should put the query between <search> and </search>. "
    "If I want to give the final answer, I should put the answer between <answer> and </answer>. Let me try again."
)


class SearchR1:
    """See the module's docstring."""

    name: str = "search_r1"
    marks: tuple[str, ...] = ()
    joint: str = "\n"

    def __init__(self, arguments: Mapping[str, str]) -> None:
        """arguments: tool name -> name of its text argument."""
        self.arguments = dict(arguments)
        self._tags = (*self.arguments, "answer")
        self.stop: tuple[str, ...] = tuple(f"</{tag}>" for tag in self._tags)

    def parse(self, text: str) -> Calls:
        """See Format. Other than in the released code, tags inside the thinking do not count."""
        start = calls_start(text, self._items, *(f"<{tag}>" for tag in self._tags))
        return self._read(text, start)

    def _items(self, text: str, start: int) -> list[Call | Malformed]:
        return list(self._read(text, start).items)

    def _read(self, text: str, start: int) -> Calls:
        pair = first_tagged(text[start:], self._tags)
        if pair is None:
            return Calls(items=(Malformed(message=self._invalid(), span=Span(0, len(text))),))
        tag, content = pair.tag, pair.content.strip()
        if tag == "answer":
            return Calls(answer=content)
        call = Call(name=tag, arguments={self.arguments[tag]: content}, span=Span(start + pair.start, start + pair.end))
        return Calls(items=(call,))

    def _invalid(self) -> str:
        if list(self.arguments) == ["search"]:
            return INVALID
        tags = ", ".join(f"<{tag}>...</{tag}>" for tag in self.arguments)
        return f"this is no valid action: write {tags}, or <answer>...</answer> for the final answer"

    def render(self, call: Call) -> str:
        """See Format."""
        return f"<{call.name}>{call.arguments[self.arguments[call.name]]}</{call.name}>"

    def answer(self, text: str) -> str:
        """The text between answer tags."""
        return f"<answer>{text}</answer>"

    def instructions(self, schemas: Sequence[Mapping[str, Any]]) -> str:
        """One line per tag."""
        known = {function_of(schema)["name"]: function_of(schema).get("description", "") for schema in schemas}
        lines = [f"<{name}> {argument} </{name}>: {known[name]}" for name, argument in self.arguments.items()]
        return "\n".join([*lines, "<answer> text </answer>: the final answer, which ends the task"])


def make(schemas: Sequence[Mapping[str, Any]]) -> Format:
    """The format with one tag per tool; without tools, Search-R1's `search(query)`.

    Raises:
        ValueError: a tool does not take one text, or is named `answer`.
    """
    arguments = text_arguments(schemas) if schemas else {"search": "query"}
    names = [str(function_of(schema)["name"]) for schema in schemas]
    refused = [name for name in names if name not in arguments or name == "answer"]
    if refused:
        raise ValueError(
            f"call format search_r1 cannot call {refused[0]}: it calls tools that take one text and are not named "
            "answer; use hermes"
        )
    return SearchR1(arguments)
