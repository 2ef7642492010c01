"""Search-R1 tags: `<search>query</search>` calls, `<answer>text</answer>` ends; the first pair in the text counts.

Source: Search-R1 (arXiv:2503.09516) and its released generation loop. Any tool that takes one text is a tag.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.text import first_tagged
from agentrl.tool.calls import Call, Calls, Format, Malformed, Span, function_of
from agentrl.tool.calls._one_text import text_arguments

INVALID = (
    "My previous action is invalid. "
    "If I want to search, I should put the query between <search> and </search>. "
    "If I want to give the final answer, I should put the answer between <answer> and </answer>. Let me try again."
)


class SearchR1:
    """See the module."""

    name: str = "search_r1"
    marks: tuple[str, ...] = ()
    joint: str = "\n"

    def __init__(self, arguments: Mapping[str, str]) -> None:
        """arguments: tool name -> its text argument."""
        self.arguments = dict(arguments)
        self._tags = (*self.arguments, "answer")
        self.stop: tuple[str, ...] = tuple(f"</{tag}>" for tag in self._tags)

    def parse(self, text: str) -> Calls:
        """See Format. As in the released code the thinking is searched too."""
        found = first_tagged(text, self._tags)
        if found is None:
            return Calls(items=(Malformed(message=self._invalid(), span=Span(0, len(text))),))
        tag, content = found.tag, found.content.strip()
        if tag == "answer":
            return Calls(answer=content)
        call = Call(name=tag, arguments={self.arguments[tag]: content}, span=Span(found.start, found.end))
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
        """Between answer tags."""
        return f"<answer>{text}</answer>"

    def instructions(self, schemas: Sequence[Mapping[str, Any]]) -> str:
        """One line a tag."""
        known = {function_of(schema)["name"]: function_of(schema).get("description", "") for schema in schemas}
        lines = [f"<{name}> {argument} </{name}>: {known[name]}" for name, argument in self.arguments.items()]
        return "\n".join([*lines, "<answer> text </answer>: the final answer, which ends the task"])


def make(schemas: Sequence[Mapping[str, Any]]) -> Format:
    """A tag for each tool; without any, Search-R1's `search(query)`; ValueError for a tool that takes no one text."""
    arguments = text_arguments(schemas) if schemas else {"search": "query"}
    names = [str(function_of(schema)["name"]) for schema in schemas]
    refused = [name for name in names if name not in arguments or name == "answer"]
    if refused:
        raise ValueError(f"call format search_r1 calls with one text, which {refused[0]} cannot be: use hermes")
    return SearchR1(arguments)
