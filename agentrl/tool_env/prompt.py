"""How a tool environment speaks to a model: tools in the prompt, calls in the model's answers."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agentrl.chat import Chat
from agentrl.env import Parsed, Past, Shown
from agentrl.tool import Calls, Format, Malformed, Span
from agentrl.tool import action as tool_action
from agentrl.types import Observation, Status

NUDGE = "no tool was called: call one, this task ends by a tool"


class ToolWords:
    """A `Prompt` for environments whose actions are tool calls (see `agentrl.tool.action`).

    Args:
        form: how the model writes calls.
        schemas: the tools, as `Observation.tools` lists them.
        system: words before the tools in the system message.
        no_call: what words without a call are: the final answer, or something to be answered with a nudge.
        keep_text: send the model's words along with the action (for rewards that read them).
        show: False leaves the tools out of the prompt, for models that have learned them.
    """

    def __init__(
        self,
        form: Format,
        schemas: Sequence[Mapping[str, Any]],
        *,
        system: str = "",
        no_call: Literal["answer", "nudge"] = "answer",
        keep_text: bool = False,
        show: bool = True,
    ) -> None:
        self.form, self.schemas, self.system, self.stop = form, tuple(schemas), system, form.stop
        self._nudge, self._keep_text, self._show = no_call == "nudge", keep_text, show

    def show(self, observation: Observation, chat: Chat | None) -> Shown:
        """Tools for the chat template if it teaches this format, else their description in the system message."""
        if not self._show or not self.schemas:
            return Shown(self.system)
        if chat is not None and chat.teaches(self.form.marks):
            return Shown(self.system, self.schemas)
        return Shown("\n\n".join(part for part in (self.system, self.form.instructions(self.schemas)) if part))

    def first(self, observation: Observation) -> str:
        """The first message."""
        return observation.text

    def turn(self, observation: Observation) -> str:
        """What the tools answered, for policies that have no role for tools."""
        return observation.text

    def window(self, first: Observation, past: Sequence[Past], done: int, observation: Observation) -> str:
        """The first message, the last turns as numbered calls and results, and what is seen now."""
        start = done - len(past) + 1
        seen = [*(p.observation.text for p in past[1:]), observation.text][: len(past)]
        lines = [
            f"Step {start + i}: {self.answer(p.action)}\nResult: {text}"
            for i, (p, text) in enumerate(zip(past, seen, strict=True))
        ]
        return "\n\n".join([first.text, *(lines or [observation.text] * bool(done))])

    def answer(self, action: str) -> str:
        """The action in the model's format; malformed calls as the complaint about them."""
        turn = tool_action.read(action, self.schemas)
        if turn.answer is not None:
            return self.form.answer(turn.answer)
        return self.form.joint.join(i.message if isinstance(i, Malformed) else self.form.render(i) for i in turn.items)

    def parse(self, text: str, observation: Observation) -> Parsed:
        """Valid unless a call is malformed, or a call is wanted and missing."""
        found = self.form.parse(text)
        if self._nudge and found.answer is not None:
            found = Calls(items=(Malformed(message=NUDGE, span=Span(0, len(text))),))
        valid = not found.errors
        action = tool_action.write(found, text if self._keep_text else None)
        return Parsed(action, valid, Status.OK if valid else Status.PARSE_ERROR, len(found.calls))
