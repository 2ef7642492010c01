"""`<action>...</action>` around a call that is written as in Python, such as `add(a=1, b=2)`.

If there is one tool and it takes one text, the tags may also stand around that text alone.

Source of the tags: the prompts of verl-agent (GiGPO, arXiv:2505.10978).
"""

import re
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
    properties_of,
    text_arguments,
)
from agentrl.tool.calls._expression import check_names, read_expression, write_expression
from agentrl.tool.calls._meant import Meant

OPEN, CLOSE = "<action>", "</action>"
ESCAPED = r"<\x2faction>"  # CLOSE inside a Python string
WANTED = "write <action>name(argument=value)</action>"
PAIR = re.compile(r"<action>(.*?)</action>", re.S)


class Action:
    """See the module's docstring."""

    name: str = "action"
    marks: tuple[str, ...] = ()
    stop: tuple[str, ...] = (CLOSE,)
    joint: str = "\n"

    def __init__(self, schemas: Sequence[Mapping[str, Any]]) -> None:
        self._schemas = list(schemas)
        self._meant = Meant(schemas, WANTED, OPEN, (CLOSE,))
        single = text_arguments(schemas)
        self._single = next(iter(single.items())) if len(schemas) == 1 and len(single) == 1 else None

    def parse(self, text: str) -> Calls:
        """See Format. Every pair of tags after the thinking is a call or a malformed call."""
        start = calls_start(text, self._items, OPEN)
        items = self._items(text, start)
        return Calls(items=tuple(items)) if items else final(text, start, self._meant)

    def _items(self, text: str, at: int) -> list[Call | Malformed]:
        items: list[Call | Malformed] = []
        while (begin := text.find(OPEN, at)) >= 0:
            pair = PAIR.match(text, begin)
            if pair is None:
                why = f"the action is not closed by </action>; {WANTED}"
                items.append(Malformed(message=why, span=Span(begin, len(text))))
                break
            items.append(self._item(pair[1].strip(), Span(*pair.span())))
            at = pair.end()
        return items

    def _item(self, content: str, span: Span) -> Call | Malformed:
        try:
            call = read_expression(content, self._schemas)
        except ValueError as error:
            if self._single is not None and content:
                return Call(name=self._single[0], arguments={self._single[1]: content}, span=span)
            why = f"this action is not valid: {error}; {WANTED}"
            return Malformed(message=why, span=span)
        if self._single is not None and call.name != self._single[0]:  # the text only looks like a call, such as code
            return Call(name=self._single[0], arguments={self._single[1]: content}, span=span)
        return Call(name=call.name, arguments=call.arguments, span=span)

    def render(self, call: Call) -> str:
        """See Format. If a text argument contains `</action>`, its slash is escaped."""
        return f"{OPEN}{write_expression(call).replace(CLOSE, ESCAPED)}{CLOSE}"

    def answer(self, text: str) -> str:
        """The text itself."""
        return text

    def instructions(self, schemas: Sequence[Mapping[str, Any]]) -> str:
        """One line per tool, written as a call."""
        lines = [
            f"<action>{function_of(s)['name']}({', '.join(properties_of(s))})</action>: "
            f"{function_of(s).get('description', '')}"
            for s in schemas
        ]
        return "\n".join(["Act by writing one of these, with values for the arguments:", *lines])


def make(schemas: Sequence[Mapping[str, Any]]) -> Format:
    """The format for these tools; ValueError if Python cannot write the name of a tool or an argument."""
    check_names(schemas, "action")
    return Action(schemas)
