"""The protocol of OpenAI's chat completions: makes the messages and tools of a request, and reads completions."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from agentrl.tool import calls
from agentrl.types import Message, Request, ToolCall

THOUGHTS = ("reasoning_content", "reasoning")  # where servers put the reasoning of a thinking model


class Completion(NamedTuple):
    """The content of a completion.

    Attributes:
        content: text of the answer.
        calls: tool calls of the answer.
        thought: reasoning that the server returned apart from the answer.
        refusal: text with which the model refused; empty if it did not refuse.
        finish_reason: the server's word for why the answer ended.
    """

    content: str
    calls: tuple[ToolCall, ...]
    thought: str
    refusal: str
    finish_reason: str


def body_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages of a request's body.

    The tool messages after an assistant message with calls get the ids of the calls in order. Servers demand a result
    for every call. If a user message follows while calls have no result yet, it therefore becomes the result of the
    first of these calls. If a message of another role follows, each of these calls gets an empty result. A tool message
    becomes a user message if every call already has its result.
    """
    body: list[dict[str, Any]] = []
    unanswered: list[ToolCall] = []
    for message in messages:
        text = sendable(message.content)
        if unanswered and message.role in ("tool", "user"):
            body.append({"role": "tool", "tool_call_id": unanswered.pop(0).id, "content": text})
            continue
        body += [{"role": "tool", "tool_call_id": call.id, "content": ""} for call in unanswered]
        unanswered = list(message.calls)
        if message.calls:
            asked = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _object(call)}}
                for call in message.calls
            ]
            body.append({"role": "assistant", "content": text or None, "tool_calls": asked})
        else:
            body.append({"role": "user" if message.role == "tool" else message.role, "content": text})
    return body


def _object(call: ToolCall) -> str:
    """The arguments of a call; `{}` if they are not a JSON object, because some servers refuse other arguments."""
    try:
        return call.arguments if isinstance(json.loads(call.arguments), dict) else "{}"
    except (ValueError, RecursionError):
        return "{}"


def sendable(text: str) -> str:
    """The text with "?" in place of every unpaired surrogate, which JSON allows and UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def read_completion(completion: Any) -> Completion:
    """The content of a completion; ValueError if it is not a chat completion."""
    choices: Any = getattr(completion, "choices", None)
    message = getattr(choices[0], "message", None) if choices and isinstance(choices, list) else None
    if message is None:
        raise ValueError("the answer is not a chat completion")
    text = getattr(message, "content", None) or ""
    if not isinstance(text, str):
        raise ValueError(f"the answer's content is of type {type(text).__name__}, not text")
    thought = next((said for name in THOUGHTS if isinstance(said := getattr(message, name, None), str) and said), "")
    refusal = getattr(message, "refusal", None)
    return Completion(
        content=sendable(text),
        calls=_calls(getattr(message, "tool_calls", None)),
        thought=sendable(thought),
        refusal=refusal if isinstance(refusal, str) else "",
        finish_reason=str(choices[0].finish_reason),
    )


def _calls(given: Any) -> tuple[ToolCall, ...]:
    found = []
    for number, one in enumerate(given if isinstance(given, list) else ()):
        function = getattr(one, "function", None)
        name, arguments = getattr(function, "name", None), getattr(function, "arguments", None)
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if not isinstance(name, str) or not name:
            raise ValueError("a tool call of the answer has no name")
        text = arguments if isinstance(arguments, str) else "{}"
        found.append(ToolCall(str(getattr(one, "id", None) or f"call_{number}"), sendable(name), sendable(text)))
    return tuple(found)


def written(reply: Completion) -> str:
    """The answer as text: its content, then each call in the format `hermes`, which prompts can read."""
    texts = [reply.content] if reply.content else []
    return "\n".join([*texts, *map(_written_call, reply.calls)])


def _written_call(call: ToolCall) -> str:
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        with suppress(ValueError):  # NaN and Infinity: Python's JSON reader takes them, and `render` refuses them
            return calls.load_format("hermes", ()).render(calls.Call(name=call.name, arguments=arguments))
    # The broken call as text: prompts read one malformed call, and the model gets an error as the call's result.
    name, text = json.dumps(call.name), call.arguments.replace("<tool_call>", "").replace("</tool_call>", "")
    return f'<tool_call>\n{{"name": {name}, "arguments": {text}}}\n</tool_call>'


def of_request(request: Request) -> dict[str, Any]:
    """The fields `messages` and `tools` of a request's body."""
    tools = {"tools": [dict(tool) for tool in request.tools]} if request.tools else {}
    return {"messages": body_messages(request.messages), **tools}
