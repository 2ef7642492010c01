"""Qwen3-Coder and Qwen3.5: `<tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>`.

A value is written without quotes; the tool's schema says whether it is a text, a number, a list and so on.
Source: the chat templates of these models.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.tool.calls import Call, Calls, Format, Malformed, Span, calls_start, final, read_calls
from agentrl.tool.calls._meant import Meant
from agentrl.tool.calls._strict_json import write_json
from agentrl.tool.calls._text_values import text_values

OPEN, CLOSE = "<tool_call>", "</tool_call>"
WANTED = (
    "write <tool_call>\n<function=NAME>\n<parameter=KEY>\nvalue\n</parameter>\n</function>\n</tool_call>, "
    "each tag once and closed"
)
FUNCTION = re.compile(r"(?:<tool_call>\s*|[ \t]{0,20})<function=([^>\s]+)>")
PARAMETER = re.compile(r"\s*<parameter=([^>\s]+)>")
# What closes a value: the tags that follow it belong to the call and not to the value.
END_OF_VALUE = re.compile(r"</parameter>(?=\s*(?:<parameter=|</function>|</tool_call>))")
END_OF_FUNCTION = re.compile(r"\s*</function>")
END = re.compile(r"\s*</tool_call>")
NEXT_VALUE = re.compile(r"^<parameter=([^>\s]+)>", re.M)
INSTRUCTIONS = """\
# Tools

You have access to the following functions:

<tools>
%s
</tools>

If you choose to call a function, reply in the following format with no text after it:

<tool_call>
<function=example_function_name>
<parameter=example_parameter>
value
</parameter>
</function>
</tool_call>"""


class XmlParameters:
    """See the module's docstring."""

    name: str = "xml_parameters"
    marks: tuple[str, ...] = (OPEN, "<function=", "<parameter=")
    stop: tuple[str, ...] = ()
    joint: str = "\n"

    def __init__(self, schemas: Sequence[Mapping[str, Any]]) -> None:
        self._values = text_values(schemas)
        self._meant = Meant(schemas, WANTED, OPEN, (CLOSE, "<function=", "<parameter="))
        names = "|".join(map(re.escape, self._values))
        # Qwen3-Coder often leaves out <tool_call>. As in vLLM's parser, this is a call, if a known tool is named.
        self._opening = re.compile(rf"<tool_call>|^[ \t]{{0,20}}<function=(?:{names or '(?!)'})>", re.M)

    def parse(self, text: str) -> Calls:
        """See Format. A value may hold tags, such as `</tool_call>`.

        Limit: a value cannot hold `</parameter>` before another tag of a call; the format has no escape.
        """
        start = calls_start(text, self._items, OPEN)
        items = self._items(text, start)
        return Calls(items=tuple(items)) if items else final(text, start, self._meant)

    def _items(self, text: str, at: int) -> list[Call | Malformed]:
        return read_calls(text, at, self._next, self._item, WANTED)

    def _next(self, text: str, at: int) -> int:
        opened = self._opening.search(text, at)
        return -1 if opened is None else opened.start()

    def _item(self, text: str, begin: int) -> Call | Malformed:
        opened = FUNCTION.match(text, begin)
        if opened is None:
            return _malformed(text, begin, "it holds no <function=NAME>...</function>")
        name, at = opened[1], opened.end()
        values = self._values.get(name)
        arguments: dict[str, Any] = {}
        while parameter := PARAMETER.match(text, at):
            key = parameter[1]
            closed = END_OF_VALUE.search(text, parameter.end())
            written = text[parameter.end() : closed.start() if closed else len(text)]
            if closed is None or self._opens_another(name, written, {*arguments, key}):
                return _malformed(text, begin, f"the parameter {key!r} is not closed by </parameter>")
            if key in arguments:
                return _malformed(text, begin, f"the parameter {key!r} occurs twice")
            early = written.find("</parameter>")
            if early >= 0 and CLOSE in written[early:]:  # words behind the value, and the value of a later call
                return _malformed(text, begin, _not_ended(text, parameter.end() + early + len("</parameter>")))
            end = "\r\n" if written.startswith("\r\n") else "\n"
            written = written.removeprefix(end).removesuffix(end)
            arguments[key] = values.value(key, written) if values else written
            at = closed.end()
        ended = END_OF_FUNCTION.match(text, at)
        ended = END.match(text, ended.end()) or (None if text.startswith(OPEN, begin) else ended) if ended else None
        if ended is None:
            return _malformed(text, begin, _not_ended(text, at))
        return Call(name=name, arguments=arguments, span=Span(begin, ended.end()))

    def _opens_another(self, name: str, value: str, given: set[str]) -> bool:
        """Does a value hold, at the beginning of a line, the tag of an argument of the tool that is not given yet?"""
        values = self._values.get(name)
        opened = (match[1] for match in NEXT_VALUE.finditer(value))
        return values is not None and any(key not in given and values.known(key) for key in opened)

    def render(self, call: Call) -> str:
        """See Format."""
        parts = [f"<parameter={key}>\n{self._text(value)}\n</parameter>" for key, value in call.arguments.items()]
        return "\n".join([OPEN, f"<function={call.name}>", *parts, "</function>", CLOSE])

    def _text(self, value: Any) -> str:
        return value if isinstance(value, str) else write_json(value)

    def answer(self, text: str) -> str:
        """The text itself."""
        return text

    def instructions(self, schemas: Sequence[Mapping[str, Any]]) -> str:
        """The words of Qwen3.5's template, shortened."""
        return INSTRUCTIONS % "\n".join(map(write_json, schemas))


def _malformed(text: str, begin: int, why: str) -> Malformed:
    """A broken call: up to its closing tag, the next call or the end of the text, whichever is first."""
    following = text.find(OPEN, begin + len(OPEN))
    until = following if following >= 0 else len(text)
    closed = text.find(CLOSE, begin, until)
    span = Span(begin, closed + len(CLOSE) if closed >= 0 else until)
    return Malformed(message=f"this tool call is not valid: {why}; {WANTED}", span=span)


def _not_ended(text: str, at: int) -> str:
    """Why a call whose parameters end at a position is not closed there."""
    rest = text[at : at + 40].strip()
    if not rest or rest.startswith(("</function>", CLOSE)):
        return "it is not closed by </function> and </tool_call>"
    return f"{rest[:20]!r} is no parameter"


def make(schemas: Sequence[Mapping[str, Any]]) -> Format:
    """The format for these tools, whose schemas give the types of values; ValueError if a schema cannot be read."""
    return XmlParameters(schemas)
