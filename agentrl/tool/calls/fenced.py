"""A fenced block of Python is a call of the only tool; the code is its text argument (as in ToRL, gem, ReTool)."""

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
    one_text_tool,
)
from agentrl.tool.calls._meant import Meant

OPENING = re.compile(r"^[ \t]*```(?:python|py)[ \t\r]*$", re.M)
CLOSING = re.compile(r"^[ \t]*```[ \t\r]*$", re.M)
# An opening line that is nearly right. Fences of other languages and without a language are plain text.
NEARLY = re.compile(r"^[ \t]*(?:```|~~~)[ \t]*(?:python3?|py3?|ipython|tool_code)\b", re.M | re.I)
WANTED = "write the code between ```python and ```, each on a line of its own"
INSTRUCTIONS = """\
You may run code: write it between ```python and ```, each on a line of its own; it is given to this tool, and the \
result follows.
%s: %s
Without such a block your words are the final answer."""


class Fenced:
    """See the module's docstring."""

    name: str = "fenced"
    marks: tuple[str, ...] = ()
    stop: tuple[str, ...] = ("```output",)
    joint: str = "\n"

    def __init__(self, tool: str, argument: str, schemas: Sequence[Mapping[str, Any]]) -> None:
        self.tool, self.argument = tool, argument
        self._meant = Meant(schemas, WANTED)

    def parse(self, text: str) -> Calls:
        """See Format. After the thinking, every block marked python or py is one call; other fences are plain text.

        A block that is not closed is a malformed call, and so is a block of Python whose first line is another.
        """
        start = calls_start(text, self._items, "```python")
        items = self._items(text, start)
        if not items and (nearly := NEARLY.search(text, start)):
            why = f"the code does not begin behind a line that is only ```python; {WANTED}"
            items = [Malformed(message=why, span=Span(nearly.start(), len(text)))]
        return Calls(items=tuple(items)) if items else final(text, start, self._meant)

    def _items(self, text: str, at: int) -> list[Call | Malformed]:
        items: list[Call | Malformed] = []
        while opened := OPENING.search(text, at):
            closed = CLOSING.search(text, opened.end())
            if closed is None:
                why = f"the code is not closed by ``` on a line of its own; {WANTED}"
                items.append(Malformed(message=why, span=Span(opened.start(), len(text))))
                break
            code = text[opened.end() + 1 : max(opened.end() + 1, closed.start() - 1)]
            if opened[0].endswith("\r"):
                code = code.replace("\r\n", "\n").removesuffix("\r")
            span = Span(opened.start(), closed.end())
            items.append(Call(name=self.tool, arguments={self.argument: code}, span=span))
            at = closed.end()
        return items

    def render(self, call: Call) -> str:
        """See Format. ValueError if the code contains a closing fence."""
        code = str(call.arguments[self.argument])
        if CLOSING.search(code):
            raise ValueError("code with a line that is only ``` cannot stand in a fenced block")
        return f"```python\n{code}\n```"

    def answer(self, text: str) -> str:
        """The text itself."""
        return text

    def instructions(self, schemas: Sequence[Mapping[str, Any]]) -> str:
        """How to write code, with the name and description of the tool that runs it."""
        return INSTRUCTIONS % (self.tool, function_of(schemas[0]).get("description", ""))


def make(schemas: Sequence[Mapping[str, Any]]) -> Format:
    """The format for a single tool that takes one text; ValueError otherwise."""
    return Fenced(*one_text_tool(schemas, "fenced"), schemas)
