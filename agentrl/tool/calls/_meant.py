"""Answers that hold no call in the format of the task, but were meant as a call.

Such an answer is a malformed call. As a final answer it would end the episode, and the call would be scored. An answer
that only speaks of a tool or of a call stays a final answer. So each form below needs the name of a tool and its
arguments (or tags that only calls have), and it must stand where a call stands: on lines of its own, or as the first
or last words of a line. A sentence with `get(q="a")` or `{"name": "get", "arguments": {}}` in its middle holds no call.
Nor does an answer that quotes a call without such tags and declares the answer in other words, as in "The answer is 5".
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agentrl.tool.calls import Malformed, Span, function_of, properties_of
from agentrl.tool.calls._meant_json import JsonCalls
from agentrl.tool.calls._meant_python import called_in_python
from agentrl.tool.calls._strict_json import read_json

# Tags that only calls have: <tool_call>, [TOOL_CALLS], <|tool_call_begin|>, <tool_code>, <minimax:tool_call>, ...
CALL_TAG = re.compile(
    r"[<\[][|\uff5c]?/?(?:[A-Za-z]{1,12}:)?(?:start_|end_)?(?:tool|function)[_\u2581-]?(?:calls?|code|use|invocation)"
    r"(?:[_\u2581][a-z_\u2581]{1,24})?[|\uff5c]?[>\]]"
    r"|<\|python_tag\|>|<\|START_ACTION\|>|<(?:function|tool|tool_name|invoke)[ =>]|to=functions\."
    r"|\u273fFUNCTION\u273f",
    re.I,
)
# Words that declare an answer, and the beginning of that answer.
DECLARED = re.compile(
    r"\\boxed\b|<answer>|(?<!what )\b(?:the|my)(?: (?:final|correct|right))? answer(?: is|:)[ *:`_\"'$(]{0,9}[\w\\-]"
    r"|^[ *#]{0,9}(?:final )?answer[ *]{0,4}:[ *`_\"'$(]{0,9}[\w\\-]",
    re.I | re.M,
)
QUOTES = "`\"'\u201c\u2018"
LABEL = re.compile(r"[ \t>*#`-]{0,20}(?:[A-Za-z ]{1,24}:)?[ \t>*`]{0,20}")  # what may stand before a call on its line
TAIL = re.compile(r"[\s`;,*]*(?:</?[\w|:]{1,30}>[\s`;]*)*")  # what may stand behind it
FENCE = re.compile(r"```([\w-]*)[ \t\r]*\n(.*?)```", re.S)
MOST_GROUPS = 200  # later groups of brackets in an answer are not looked at


class _Suspect(NamedTuple):
    """A call in an answer: the name that it calls, and the place of its words."""

    name: str
    begin: int
    end: int


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
        self._wanted, self._opening, self._marks = wanted, opening, tuple(marks)
        self._arguments = {str(function_of(one)["name"]): set(properties_of(one)) for one in schemas}
        names = "|".join(re.escape(name) for name in sorted(self._arguments, key=len, reverse=True))
        names = names or r"(?!)"
        self._name = re.compile(rf"(?<![\w-])(?:{names})(?![\w-])")
        self._json = JsonCalls(self._arguments)
        self._head = re.compile(
            rf"^{LABEL.pattern}(?:functions?\.)?({names})(?::\d+)?`?[ \t]{{0,20}}[:=(]?\s{{0,20}}"
            r"(?:```\w{0,9}\s{1,9})?(?={)",
            re.M,
        )
        self._lines = re.compile(
            rf"^[ *>]{{0,20}}(?:action|tool|function|name|tool[_ ]name)[ *]{{0,9}}:[ *`]{{0,20}}({names})\b"
            r"[^\n]{0,40}\n"
            r"[ *>]{0,20}(?:action[ _]input|(?:tool )?(?:input|args|arguments|parameters))[ *]{0,9}:"
            rf"|^[ *]{{0,20}}Action(?: \d+)?[ *]{{0,9}}:[ *`]{{0,20}}({names})\[",
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
        name = self._tagged(text)
        if not name and self._arguments:
            found = next(itertools.chain(self._in_brackets(text), self._headed(text), self._in_python(text)), None)
            if found and not DECLARED.search(text[: found.begin]) and not DECLARED.search(text[found.end :]):
                name = found.name
        return name and f"it calls {name} in another form"

    def _tagged(self, text: str) -> str:
        """The tool whose name stands inside tags of a call, or is such a tag; or of lines that only calls have."""
        for tag in CALL_TAG.finditer(text):
            if text[max(0, tag.start() - 1) : tag.start()] in set(QUOTES):
                continue
            closes = tag[0].startswith(("</", "[/"))
            named = self._name.search(text, 0 if closes else tag.start())
            if named is not None:
                return named[0]
            break
        lines = self._lines.search(text)
        if lines is not None:
            return lines[1] or lines[2]
        pair = self._pair.search(text)
        if pair is None or text[: pair.start()].strip()[-1:] in set(QUOTES):
            return ""
        closing = text.rstrip().endswith((f"</{pair[1]}>", "/>"))
        return pair[1] if closing and _begins_line(text, pair.start()) else ""

    def _in_brackets(self, text: str) -> Iterator[_Suspect]:
        """Objects such as {"name": "get", "arguments": {...}}, also in Python's spelling."""
        for begin, end in _groups(text):
            name = self._json.called(text[begin:end])
            if name and _stands_alone(text, begin, end):
                yield _Suspect(name, begin, end)

    def _headed(self, text: str) -> Iterator[_Suspect]:
        """A name before an object of its arguments: `get {"q": "a"}`, `functions.get:0 {"q": "a"}`."""
        for head in itertools.islice(self._head.finditer(text), MOST_GROUPS):
            try:
                given, end = read_json(text, head.end())
            except ValueError:
                continue
            if not given or self._json.takes(head[1], given):
                yield _Suspect(head[1], head.start(), end)

    def _in_python(self, text: str) -> Iterator[_Suspect]:
        """`get(q="a")` as the whole answer, as its first or last line, or in the fence at its end."""
        if "(" not in text:
            return
        begin, end = len(text) - len(text.lstrip()), len(text.rstrip())
        first, last = text.find("\n", begin, end), text.rfind("\n", begin, end) + 1
        places = [(begin, end), *([(begin, first), (last, end)] if first >= 0 else [])]
        for place in places:
            words = text[slice(*place)]
            label = LABEL.match(words)
            bare = words[label.end() if label else 0 :]
            if name := called_in_python(words, self._arguments) or called_in_python(bare, self._arguments):
                yield _Suspect(name, *place)
        fences = list(FENCE.finditer(text, begin, end)) if text.endswith("```", begin, end) else []
        for fence in fences[-1:]:
            if name := called_in_python(fence[2], self._arguments):
                yield _Suspect(name, *fence.span())


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
