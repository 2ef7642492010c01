"""Answers that hold no call in the format of the task, but were meant as a call.

Such an answer is a malformed call. As a final answer it would end the episode, and the call would be scored. An answer
that only speaks of a tool or of a call stays a final answer. So each form below needs the name of a tool and its
arguments (or tags that only calls have), and it must stand where a call stands: on lines of its own, or as the first
or last words of a line. A sentence with `get(q="a")` or `{"name": "get", "arguments": {}}` in its middle holds no call.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentrl.tool.calls import Malformed, Span, function_of, properties_of
from agentrl.tool.calls._expression import read_expression
from agentrl.tool.calls._strict_json import read_json

# Keys under which models write the name of a tool and its arguments, in the formats of published models and servers.
NAME_KEYS = ("name", "tool", "tool_name", "function", "function_name", "recipient_name", "action", "method")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "params", "kwargs", "input", "inputs", "action_input", "tool_input")
NOTES = {"id", "type", "tool_call_id", "description"}  # keys beside a name that are no arguments
# Tags that only calls have: <tool_call>, [TOOL_CALLS], <|tool_call_begin|>, <tool_code>, <minimax:tool_call>, ...
CALL_TAG = re.compile(
    r"[<\[][|\uff5c]?/?(?:[A-Za-z]{1,12}:)?(?:start_|end_)?(?:tool|function)[_\u2581-]?(?:calls?|code|use|invocation)"
    r"(?:[_\u2581][a-z_\u2581]{1,24})?[|\uff5c]?[>\]]"
    r"|<\|python_tag\|>|<\|START_ACTION\|>|<(?:function|tool|tool_name|invoke)[ =>]|to=functions\.",
    re.I,
)
QUOTES = "`\"'\u201c\u2018"
LABEL = re.compile(r"[ \t>*#`-]{0,20}(?:[A-Za-z ]{1,24}:)?[ \t>*`]{0,20}")  # what may stand before a call on its line
TAIL = re.compile(r"[\s`;,*]*(?:</?[\w|:]{1,30}>[\s`;]*)*")  # what may stand behind it
FENCE = re.compile(r"```[\w-]*[ \t\r]*\n(.*?)```", re.S)
TAGS_AROUND = re.compile(r"\A(?:<[^<>\n]{1,40}>\s*)+|(?:<[^<>\n]{1,40}>\s*)+\Z")
MOST_GROUPS = 200  # later groups of brackets in an answer are not looked at
MOST_CHARS = 2_000  # longer lines are not read as a call in Python


class Meant:
    """Finds calls that are written in another way than the format's.

    Args:
        schemas: the tools.
        wanted: how to write a call, for the message.
        opening: the tag that opens a call in this format; empty if there is none.
        marks: tags that only stand inside calls of this format, or close them.
    """

    def __init__(
        self, schemas: Sequence[Mapping[str, Any]], wanted: str, opening: str = "", marks: Sequence[str] = ()
    ) -> None:
        self._schemas, self._wanted, self._opening, self._marks = list(schemas), wanted, opening, tuple(marks)
        self._arguments = {str(function_of(one)["name"]): set(properties_of(one)) for one in schemas}
        names = "|".join(re.escape(name) for name in sorted(self._arguments, key=len, reverse=True))
        names = names or r"(?!)"
        self._name = re.compile(rf"(?<![\w-])(?:{names})(?![\w-])")
        self._named = re.compile(
            rf"""["'](?:{"|".join(NAME_KEYS)})["']\s*:\s*["'](?:functions?[.:/])?({names})(?::\d+)?["']"""
        )
        self._head = re.compile(
            rf"^{LABEL.pattern}(?:functions?\.)?({names})(?::\d+)?`?[ \t]{{0,20}}[:=(]?\s{{0,20}}(?={{)", re.M
        )
        self._react = re.compile(
            rf"^[ *]{{0,20}}Action[ *]{{0,9}}:[ *`]{{0,20}}({names})\b[^\n]*\n[ *]{{0,20}}Action[ _]Input[ *]{{0,9}}:",
            re.M | re.I,
        )
        self._pair = re.compile(rf"<({names})(?:\s[^<>]*)?(?:/>|>)")

    def malformed(self, text: str, start: int) -> Malformed | None:
        """The malformed call that an answer, read from `start` on, was meant to be; None if it is a final answer."""
        why = self._why(text[start:])
        if not why:
            return None
        message = f"this tool call is not valid: {why}; {self._wanted}, or give the final answer without a call"
        return Malformed(message=message, span=Span(start, len(text)))

    def _why(self, text: str) -> str:
        if any(_unquoted(text, mark) for mark in self._marks):
            return f"it is not opened by {self._opening}"
        name = self._tagged(text) or self._in_brackets(text) or self._headed(text) or self._in_python(text)
        return name and f"it calls {name} in another form"

    def _tagged(self, text: str) -> str:
        """The tool whose name stands behind a tag of a call, or is such a tag."""
        for tag in CALL_TAG.finditer(text):
            if text[max(0, tag.start() - 1) : tag.start()] in set(QUOTES):
                continue
            named = self._name.search(text, tag.start())
            if named is not None:
                return named[0]
            break
        pair = self._pair.search(text)
        if pair is None or text[: pair.start()].strip()[-1:] in set(QUOTES):
            return ""
        closing = text.rstrip().endswith((f"</{pair[1]}>", "/>"))
        return pair[1] if closing and _begins_line(text, pair.start()) else ""

    def _in_brackets(self, text: str) -> str:
        """The tool that an object such as {"name": "get", "arguments": {...}} calls, also in Python's spelling."""
        for begin, end in _groups(text):
            name = self._called(text[begin:end])
            if name and _stands_alone(text, begin, end):
                return name
        return ""

    def _called(self, group: str) -> str:
        named = self._named.search(group)
        if named is not None and any(f'"{key}"' in group or f"'{key}'" in group for key in ARGUMENT_KEYS):
            return named[1]
        try:
            value = read_json(group, 0).value
        except ValueError:
            return ""
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, dict):
                continue
            flat = set(one) - {*NAME_KEYS, *NOTES}
            if named is not None and flat <= self._arguments[named[1]] and (flat or set(one) - NOTES == {"name"}):
                return named[1]  # {"name": "get", "q": "a"} and {"name": "get"}
            for name, given in one.items():
                if name in self._arguments and len(one) == 1 and self._takes(name, given):
                    return str(name)  # {"get": {"q": "a"}}
        return ""

    def _takes(self, name: str, given: Any) -> bool:
        return isinstance(given, dict) and bool(given) and set(given) <= self._arguments[name]

    def _headed(self, text: str) -> str:
        """The tool of `get {"q": "a"}`, `functions.get:0 {"q": "a"}` or `Action: get` with its `Action Input:`."""
        react = self._react.search(text)
        if react is not None:
            return react[1]
        for head in itertools.islice(self._head.finditer(text), MOST_GROUPS):
            try:
                given = read_json(text, head.end()).value
            except ValueError:
                continue
            if not given or self._takes(head[1], given):
                return head[1]
        return ""

    def _in_python(self, text: str) -> str:
        """The tool of `get(q="a")`, if this is the whole answer, a fenced answer or the last line."""
        if not self._arguments or "(" not in text:
            return ""
        fences = FENCE.findall(text) if text.rstrip().endswith("```") else []
        lines = text.strip().splitlines() or [""]
        for written in (text, *fences[-1:], lines[-1]):
            call = TAGS_AROUND.sub("", written.strip().strip("`")).strip()
            call = call[LABEL.match(call).end() :] if written is lines[-1] else call  # type: ignore[union-attr]
            call = call[1:-1] if call[:1] == "[" and call[-1:] == "]" else call
            if len(call) > MOST_CHARS or not call.endswith(")"):
                continue
            call = call.removeprefix("functions.")
            named = self._name.match(call)
            if named is None or not call[named.end() :].lstrip().startswith("("):
                continue
            try:
                read = read_expression(call, self._schemas)
            except ValueError:
                continue
            if "=" in call or any(isinstance(one, str) for one in read.arguments.values()) or not read.arguments:
                return read.name  # sqrt(2) may be a final answer
        return ""


def _unquoted(text: str, tag: str) -> bool:
    """Does a tag stand in a text without quotation marks before it?"""
    at = text.find(tag)
    while at >= 0 and text[max(0, at - 1) : at] in set(QUOTES):
        at = text.find(tag, at + 1)
    return at >= 0


def _groups(text: str) -> Iterator[tuple[int, int]]:
    """The outermost groups in curly or square brackets; a group without an end reaches to the end of the text."""
    depth, begin, quote, found, before = 0, 0, "", 0, ""
    for at, letter in enumerate(text):
        if quote:
            if letter == quote and text[at - 1] != "\\":
                quote = ""
        elif letter in "{[":
            begin = begin if depth else at
            depth += 1
        elif depth and letter in "}]":
            depth -= 1
            if not depth:
                yield begin, at + 1
                found += 1
                if found == MOST_GROUPS:
                    return
        elif depth and (letter == '"' or (letter == "'" and before in "{[,:(")):
            quote = letter
        before = before if letter.isspace() else letter
    if depth:
        yield begin, len(text)


def _begins_line(text: str, at: int) -> bool:
    line = text.rfind("\n", 0, at) + 1
    head = LABEL.match(text, line, at)
    return head is not None and head.end() == at


def _stands_alone(text: str, begin: int, end: int) -> bool:
    """Is `text[begin:end]` at the beginning or at the end of its lines, and no quotation in a sentence?"""
    if _begins_line(text, begin):
        return True
    quoted = text[begin - 1] in QUOTES
    tail = TAIL.match(text, end)
    assert tail is not None
    rest = text.find("\n", end)
    return not quoted and tail.end() >= (rest if rest >= 0 else len(text))
