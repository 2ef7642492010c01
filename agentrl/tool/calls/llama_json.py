"""Llama 3: the whole answer is `{"name": ..., "parameters": {...}}`, or several such objects separated by `;`.

The tag `<|python_tag|>` may stand before the first object.

Source: the chat templates of Llama 3.1 and 3.2.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.tool.calls import (
    Call,
    Calls,
    Format,
    Malformed,
    Span,
    calls_start,
    final,
    function_of,
)
from agentrl.tool.calls._meant import Meant
from agentrl.tool.calls._strict_json import read_json, write_json
from agentrl.tool.calls.hermes import call_of

TAG = "<|python_tag|>"
WANTED = 'write nothing but {"name": "...", "parameters": {...}}'
INSTRUCTIONS = """\
You have access to the following functions. To call a function, please respond with JSON for a function call.
Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}. \
Do not use variables. Several calls are separated by ; .

%s"""


class LlamaJson:
    """See the module's docstring."""

    name: str = "llama_json"
    marks: tuple[str, ...] = ('"parameters": dictionary',)
    stop: tuple[str, ...] = ()
    joint: str = "; "

    def __init__(self, schemas: Sequence[Mapping[str, Any]]) -> None:
        self._known = {str(function_of(schema)["name"]) for schema in schemas}
        self._meant = Meant(schemas, WANTED)

    def parse(self, text: str) -> Calls:
        """See Format. The answer, after the thinking, contains calls or is a final answer as a whole.

        It contains calls in these cases:

        - It begins with the tag.
        - It begins with a JSON object that has the key "name", and the key "parameters" or "arguments"; or it has no
          other key than "name" and `"type": "function"`, and names a tool. The object ends the text, or `;` follows it.
        - It begins with `{` and contains `"name"` (with the quotation marks) and one of these keys or the name of a
          tool, but no JSON value can be read there, or words other than `;` follow the value.

        In these cases the text, after the tag if there is one, is read as JSON values separated by `;`. Each value is a
        call or a malformed call. A value that cannot be read, or that other words follow, is a malformed call which
        reaches to the end of the text.

        As in vLLM's parser (`llama_tool_parser.py`), `arguments` is read as `parameters`. Other than there, an object
        behind other words is a malformed call.
        """
        start = calls_start(text, self._items, '{"name"')
        items = self._items(text, start)
        return Calls(items=tuple(items)) if items else final(text, start, self._meant)

    def _items(self, text: str, start: int) -> list[Call | Malformed]:
        at = _skip(text, start)
        tagged = text.startswith(TAG, at)
        at = _skip(text, at + len(TAG)) if tagged else at
        items: list[Call | Malformed] = []
        while at < len(text) or (tagged and not items):
            if not (tagged or items or text.startswith("{", at)):
                break
            item, meant = self._item(text, at)
            if not (tagged or meant or items):
                break
            items.append(item)
            at = _skip(text, item.span.end, " \t\r\n;")
        return items

    def _item(self, text: str, begin: int) -> tuple[Call | Malformed, bool]:
        """(the item at a position, is it meant as a call?). The second value matters only for a first item."""
        try:
            value, end = read_json(text, begin)
            after = _skip(text, end)
            if after < len(text) and text[after] != ";":
                raise ValueError(f"words follow the call: {text[after : after + 20]!r}")
        except ValueError as error:
            span = Span(begin, len(text))
            why = f"this tool call is not valid: {error}; {WANTED}"
            rest = text[begin:]
            keys = ('"parameters"', '"arguments"', *(f'"{name}"' for name in self._known))
            return Malformed(message=why, span=span), '"name"' in rest and any(key in rest for key in keys)
        if isinstance(value, dict) and "name" in value:
            if value.get("type") == "function":
                del value["type"]  # Llama 3 models write this key unasked
            if "arguments" in value and "parameters" not in value:
                value["parameters"] = value.pop("arguments")
        meant = isinstance(value, dict) and "name" in value and (self._bare(value) or self._whole(value))
        return call_of(value, "parameters", Span(begin, end), WANTED), meant

    def _whole(self, value: Mapping[str, Any]) -> bool:
        """Has an object an object of arguments, or any arguments and the name of a tool?"""
        named = isinstance(value["name"], str) and value["name"] in self._known
        return isinstance(value.get("parameters"), dict) or ("parameters" in value and named)

    def _bare(self, value: Mapping[str, Any]) -> bool:
        """Is an object without arguments a call?"""
        return len(value) == 1 and (not self._known or str(value["name"]) in self._known)

    def render(self, call: Call) -> str:
        """See Format."""
        return write_json({"name": call.name, "parameters": dict(call.arguments)})

    def answer(self, text: str) -> str:
        """The text itself."""
        return text

    def instructions(self, schemas: Sequence[Mapping[str, Any]]) -> str:
        """The words of Llama 3.1's template, and a sentence on how to separate several calls."""
        return INSTRUCTIONS % "\n\n".join(map(write_json, schemas))


def _skip(text: str, at: int, blanks: str = " \t\r\n") -> int:
    while at < len(text) and text[at] in blanks:
        at += 1
    return at


def make(schemas: Sequence[Mapping[str, Any]]) -> Format:
    """The format; the names of the tools show which answers were meant as calls."""
    return LlamaJson(schemas)
