"""Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, any number of calls in a text.

Source: the chat templates of NousResearch/Hermes-2-Pro and Qwen2.5, Qwen3.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.tool.calls import Call, Calls, Format, Malformed, Span, calls_start, final, read_calls
from agentrl.tool.calls._meant import Meant
from agentrl.tool.calls._strict_json import read_json, write_json

OPEN, CLOSE = "<tool_call>", "</tool_call>"
BLANKS = re.compile(r"\s*")
WANTED = 'write <tool_call>{"name": "...", "arguments": {...}}</tool_call>'
INSTRUCTIONS = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
%s
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""


class Hermes:
    """See the module's docstring."""

    name: str = "hermes"
    marks: tuple[str, ...] = (OPEN, '"arguments"')
    stop: tuple[str, ...] = ()
    joint: str = "\n"

    def __init__(self, schemas: Sequence[Mapping[str, Any]]) -> None:
        self._meant = Meant(schemas, WANTED, OPEN, (CLOSE,))

    def parse(self, text: str) -> Calls:
        """See Format. A `</tool_call>` inside a JSON string does not end the call."""
        start = calls_start(text, self._items, OPEN)
        items = self._items(text, start)
        return Calls(items=tuple(items)) if items else final(text, start, self._meant)

    def _items(self, text: str, at: int) -> list[Call | Malformed]:
        return read_calls(text, at, lambda text, at: text.find(OPEN, at), self._item, WANTED)

    def _item(self, text: str, begin: int) -> Call | Malformed:
        try:
            value, end = read_json(text, begin + len(OPEN))
            closed = BLANKS.match(text, end)
            assert closed is not None
            if not text.startswith(CLOSE, closed.end()):
                raise ValueError("it is not closed by </tool_call>")
            span = Span(begin, closed.end() + len(CLOSE))
        except ValueError as error:
            return Malformed(message=f"this tool call is not valid: {error}; {WANTED}", span=_broken(text, begin))
        return call_of(value, "arguments", span, WANTED)

    def render(self, call: Call) -> str:
        """See Format; the layout of Qwen's templates."""
        body = write_json({"name": call.name, "arguments": dict(call.arguments)})
        return f"{OPEN}\n{body}\n{CLOSE}"

    def answer(self, text: str) -> str:
        """The text itself."""
        return text

    def instructions(self, schemas: Sequence[Mapping[str, Any]]) -> str:
        """The words of Qwen2.5's template."""
        return INSTRUCTIONS % "\n".join(map(write_json, schemas))


def _broken(text: str, begin: int) -> Span:
    """The span of a broken call: up to its closing tag, the next call or the end of the text, whichever is first."""
    inner = begin + len(OPEN)
    following = text.find(OPEN, inner)
    until = following if following >= 0 else len(text)
    closed = text.find(CLOSE, inner, until)
    return Span(begin, closed + len(CLOSE) if closed >= 0 else until)


def call_of(value: Any, key: str, span: Span, wanted: str) -> Call | Malformed:
    """The call that a JSON value means. `key` names the entry with the arguments; error messages end with `wanted`."""
    if not isinstance(value, dict):
        why = f"it is {_kind(value)}, not an object"
    elif not isinstance(value.get("name"), str) or not value["name"]:
        why = 'it has no "name"' if "name" not in value else '"name" is no text'
    elif not isinstance(value.get(key, {}), dict):
        why = f'"{key}" is {_kind(value[key])}, not an object'
    elif extra := sorted(set(value) - {"name", key}):
        why = f'"{extra[0]}" does not belong there'
    else:
        return Call(name=value["name"], arguments=value.get(key, {}), span=span)
    return Malformed(message=f"this tool call is not valid: {why}; {wanted}", span=span)


def _kind(value: Any) -> str:
    words = {list: "a list", str: "a text", bool: "true or false", type(None): "null", dict: "an object"}
    return words.get(type(value), "a number")


def make(schemas: Sequence[Mapping[str, Any]]) -> Format:
    """The format; the names of the tools show which answers were meant as calls."""
    return Hermes(schemas)
