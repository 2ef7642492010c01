"""The prompt of a tool environment: it describes tools, and reads calls in the model's answers."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agentrl.chat import Chat
from agentrl.env import Parsed, Past, Shown
from agentrl.tool import Calls, Format, Malformed, Span, load_format
from agentrl.tool import action as tool_action
from agentrl.types import Observation, Status

NUDGE = "no tool was called: call one, this task ends by a tool"


class ToolWords:
    """A `Prompt` for environments whose actions are tool calls (see `agentrl.tool.action`).

    Args:
        form: the format in which the model writes calls.
        schemas: the tools, as `Observation.tools` lists them.
        system: the text that precedes the tools in the system message.
        no_call: with `answer`, an answer without a call is the final answer. With `nudge`, it is invalid, and the next
            observation asks the model to call a tool.
        keep_text: add the model's whole answer to the action, for rewards that read it.
        show: False leaves the tools out of the prompt, for models that were trained with these tools.
        native: the server takes the schemas and returns the calls as data. The policy writes these calls as text in
            the format `hermes`, so `form` must be `hermes`.
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
        native: bool = False,
    ) -> None:
        self.form, self.schemas, self.system, self.stop = form, tuple(schemas), system, form.stop
        self._nudge, self._keep_text, self._show, self.native = no_call == "nudge", keep_text, show, native
        assert not native or form.name == "hermes", f"native calls are written as hermes, not as {form.name}"

    def as_native(self) -> "ToolWords":
        """The same prompt for a server that takes tools as data; this prompt itself if it does not show the tools."""
        if not self._show:
            return self
        return ToolWords(
            load_format("hermes", self.schemas),
            self.schemas,
            system=self.system,
            no_call="nudge" if self._nudge else "answer",
            keep_text=self._keep_text,
            native=True,
        )

    def show(self, observation: Observation, chat: Chat | None) -> Shown:
        """The tools: schemas if the chat template teaches the format, else a text in the system message.

        The result has neither schemas nor such a text if the prompt does not show tools, or if the server takes the
        schemas as data.
        """
        if not self._show or not self.schemas or self.native:
            return Shown(self.system)
        if chat is not None and chat.teaches(self.form.marks):
            return Shown(self.system, self.schemas)
        return Shown("\n\n".join(part for part in (self.system, self.form.instructions(self.schemas)) if part))

    def first(self, observation: Observation) -> str:
        """The text of the first observation."""
        return observation.text

    def turn(self, observation: Observation) -> str:
        """The results of the tools as one text, for contexts that do not use the observation's messages."""
        return observation.text

    def window(self, first: Observation, past: Sequence[Past], done: int, observation: Observation) -> str:
        """The first message, and the last turns as numbered actions with results; `observation` is the last result."""
        start = done - len(past) + 1
        results = [*(p.observation.text for p in past[1:]), observation.text][: len(past)]
        lines = [
            f"Step {start + i}: {self.answer(p.action)}\nResult: {text}"
            for i, (p, text) in enumerate(zip(past, results, strict=True))
        ]
        return "\n\n".join([first.text, *(lines or [observation.text] * bool(done))])

    def answer(self, action: str) -> str:
        """The action in the model's format; a malformed call is written as its error message."""
        turn = tool_action.read(action, self.schemas)
        if turn.answer is not None:
            return self.form.answer(turn.answer)
        return self.form.joint.join(i.message if isinstance(i, Malformed) else self.form.render(i) for i in turn.items)

    def parse(self, text: str, observation: Observation) -> Parsed:
        """The action of an answer. The answer is invalid if a call in it is malformed.

        If `no_call` is `nudge`, an answer without a call is invalid too.
        """
        parsed = self.form.parse(text)
        if self._nudge and parsed.answer is not None:
            parsed = Calls(items=(Malformed(message=NUDGE, span=Span(0, len(text))),))
        valid = not parsed.errors
        action = tool_action.write(parsed, text if self._keep_text else None)
        return Parsed(action, valid, Status.OK if valid else Status.PARSE_ERROR, len(parsed.calls))
