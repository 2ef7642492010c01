"""Remarks about chat templates that do not fit a prompt, for the start of a run; `agentrl.chat.Chat` still works."""

from collections.abc import Sequence

from agentrl.chat import Chat, template_report
from agentrl.env import Prompt
from agentrl.tool import Call, Format, calls, function_of, properties_of
from agentrl.types import Message


def template_fit(chat: Chat, prompt: Prompt) -> str:
    """Remarks for the user on this template, one per line; empty if the template fits the prompt.

    Args:
        chat: the template.
        prompt: the environment's prompt; the prompt of a tool environment has `form` and `schemas`.
    """
    lines = [template_report(chat)]
    form: Format | None = getattr(prompt, "form", None)
    schemas = getattr(prompt, "schemas", ())
    if form is not None and schemas:
        lines += [_format_line(chat, form, schemas), _role_line(chat), broken_turn(chat, conversation(form, schemas))]
    return "\n".join(line for line in lines if line)


def _format_line(chat: Chat, form: Format, schemas: Sequence[object]) -> str:
    """A remark if the template does not teach the format in which the environment reads calls."""
    if chat.teaches(form.marks):
        return ""
    others = []
    for name in calls.format_names():
        try:
            other = calls.load_format(name, schemas)  # type: ignore[arg-type]
        except ValueError:
            continue
        if chat.teaches(other.marks):
            others.append(name)
    better = (
        f"; it teaches {' and '.join(others)}: env.call_format={others[-1]} would use the words of the template"
        if others
        else ""
    )
    return f"the chat template does not teach call_format={form.name}, so the system message has the tools{better}"


def _role_line(chat: Chat) -> str:
    if chat.has_tool_role:
        return ""
    return "the chat template has no role for tools, so the results of tools become user messages"


def conversation(form: Format, schemas: Sequence[object]) -> list[Message]:
    """A chat with every kind of turn: one call, two calls, a final answer, a user message."""
    schema = schemas[0]
    name = str(function_of(schema)["name"])  # type: ignore[arg-type]
    call = form.render(Call(name=name, arguments=dict.fromkeys(properties_of(schema), "x")))  # type: ignore[arg-type]
    return [
        Message("user", "q"),
        Message("assistant", call),
        Message("tool", "r", name),
        Message("assistant", f"{call}{form.joint}{call}"),
        Message("tool", "r", name),
        Message("tool", "s", name),
        Message("assistant", form.answer("a")),
        Message("user", "v"),
    ]


def broken_turn(chat: Chat, messages: Sequence[Message]) -> str:
    """A remark on the first turn that the template changes when later turns follow; empty if it changes none.

    The next prompt adds text after an assistant message, so each compared chat is first cut after such a message.
    """
    if not chat.has_tool_role:
        messages = [m._replace(role="user", name="") if m.role == "tool" else m for m in messages if m.content != "s"]
    ends = [i + 1 for i, message in enumerate(messages) if message.role == "assistant"]
    for turn, end in enumerate(ends):
        following = next((i for i in ends if i > end), len(messages))
        try:
            before = chat.render(messages[:end], reply=False)
            after = chat.render(messages[:following], reply=False)
        except Exception as error:  # noqa: BLE001  a template may raise anything
            why = " ".join(str(error).split())[:200]
            return f"the chat template cannot render a chat with tools at turn {turn}: {why}"
        prefix = before[: before.rindex(chat.end_text) + len(chat.end_text)] if chat.end_text in before else before
        if not after.startswith(prefix):
            return (
                f"the chat template rewrites turn {turn} as soon as turn {turn + 1} begins; the context `full` keeps "
                "the sampled text of the turn (the context `last_k` writes each prompt from the start)"
            )
    return ""
