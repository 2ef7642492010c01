"""Qwen3-Coder and Qwen3.5: `<tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>`.

A value is written without quotes; the tool's schema says whether it is a text, a number, a list and so on.
Source: the chat templates of these models.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.tool.calls import Call, Calls, Format, Malformed, Span, after_thinking, final, function_of, properties_of
from agentrl.tool.calls._strict_json import read_json, write_json

OPEN, CLOSE = "<tool_call>", "</tool_call>"
WANTED = (
    "write <tool_call>\n<function=NAME>\n<parameter=KEY>\nvalue\n</parameter>\n</function>\n</tool_call>, "
    "each tag once and closed"
)
FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*)</function>\s*", re.S)
PARAMETER = re.compile(r"\s*<parameter=([^>\s]+)>(.*?)</parameter>", re.S)
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
        self._types = {function_of(schema)["name"]: properties_of(schema) for schema in schemas}

    def parse(self, text: str) -> Calls:
        """See Format. Limit: a value cannot hold `</parameter>` or `</tool_call>`; the format has no escape."""
        start = at = after_thinking(text)
        items: list[Call | Malformed] = []
        while (begin := text.find(OPEN, at)) >= 0:
            closed = text.find(CLOSE, begin)
            at = len(text) if closed < 0 else closed + len(CLOSE)
            inner = text[begin + len(OPEN) : closed if closed >= 0 else at]
            items.append(self._item(inner, closed >= 0, Span(begin, at)))
        return Calls(items=tuple(items)) if items else final(text, start)

    def _item(self, inner: str, closed: bool, span: Span) -> Call | Malformed:
        match = FUNCTION.fullmatch(inner) if closed else None
        if match is None:
            why = "it is not closed by </tool_call>" if not closed else "it holds no <function=NAME>...</function>"
            return Malformed(message=f"this tool call is not valid: {why}; {WANTED}", span=span)
        name, body = match.groups()
        arguments: dict[str, Any] = {}
        at = 0
        while parameter := PARAMETER.match(body, at):
            key, value = parameter.groups()
            if key in arguments:
                why = f"the parameter {key!r} occurs twice"
                return Malformed(message=f"this tool call is not valid: {why}; {WANTED}", span=span)
            arguments[key] = self._value(name, key, value)
            at = parameter.end()
        if body[at:].strip():
            why = f"{body[at:].strip()[:20]!r} is no parameter"
            return Malformed(message=f"this tool call is not valid: {why}; {WANTED}", span=span)
        return Call(name=name, arguments=arguments, span=span)

    def _value(self, name: str, key: str, text: str) -> Any:
        """The value of a parameter, from the text without one newline at each end.

        If the schema asks for a text or is unknown, or if the text is no JSON, the value is the text itself. Otherwise
        the text is read as JSON. The text `null` becomes None if the schema allows null.
        """
        text = text.removeprefix("\n").removesuffix("\n")
        schema = self._types.get(name, {}).get(key, {})
        if text == "null" and schema.get("nullable"):
            return None
        if not schema or schema.get("type") == "string":
            return text
        try:
            value, end = read_json(text, 0)
        except ValueError:
            return text  # the strict check of arguments accepts this text or says what is wrong
        return text if text[end:].strip() else value

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


def make(schemas: Sequence[Mapping[str, Any]]) -> Format:
    """The format for these tools, whose schemas give the types of values."""
    return XmlParameters(schemas)
