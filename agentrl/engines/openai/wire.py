"""The protocol of OpenAI's chat completions: makes the messages and tools of a request, and reads completions."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from agentrl.engines.openai.roles import EMPTY, Roles, alternating, with_system
from agentrl.engines.openai.words import ServerWords, words_of
from agentrl.tool import calls
from agentrl.types import Finish, Message, Request, ToolCall

AS_THEY_ARE = Roles()

# Where servers put the reasoning of a thinking model: most servers, OpenRouter and newer vLLM, Ollama.
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
TEXT_PARTS = ("text", "output_text")  # types of parts of an answer's content that hold its text
# Types of parts that hold reasoning (Mistral, Anthropic, OpenAI, Kimi, OpenRouter), and the fields that hold its text.
THOUGHT_PARTS = (
    *("thinking", "think", "thought", "reasoning", "reasoning_content", "reasoning_text", "summary_text"),
    *("reasoning.text", "reasoning.summary"),
)
THOUGHT_FIELDS = (
    *("thinking", "think", "thought", "reasoning", "reasoning_content", "reasoningText", "text", "summary", "content"),
)
# Types of parts without words: reasoning that the server hides, and references to sources (Mistral).
SILENT_PARTS = ("redacted_thinking", "reasoning.encrypted", "reference", "tool_reference", "citations")
DEEPEST = 4  # levels of parts inside parts
# The server's word for why an answer ended, in lower case and up to a colon -> `Generation.finish`; any other word is
# "stop". Sources: OpenAI; Mistral, Gemini and Anthropic behind gateways; Bedrock; Zhipu.
FINISH: Mapping[str, Finish] = MappingProxyType(
    {
        **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_length", "token_limit"), "length"),
        **dict.fromkeys(
            ("content_filter", "content_filtered", "guardrail_intervened", "refusal", "sensitive"), "abort"
        ),
        **dict.fromkeys(("safety", "recitation", "prohibited_content", "blocklist", "spii"), "abort"),
        **dict.fromkeys(("malformed_function_call", "function_call_filter", "unexpected_tool_call"), "malformed"),
        "model_context_window_exceeded": "context",
    }
)
# Words with which a server says that it could not finish the answer (OpenRouter, vLLM, SGLang, DeepSeek, Zhipu).
FAILED = ("error", "abort", "insufficient_system_resource", "network_error")


class Unreadable(ValueError):
    """The answer is not a chat completion, or holds what is not text."""


class ServerSays(Unreadable):
    """A successful answer holds an error in place of a completion; `words` are the server's words."""

    def __init__(self, words: ServerWords) -> None:
        super().__init__(words.shown(0) or "the answer is not a chat completion")
        self.words = words


class Completion(NamedTuple):
    """The content of a completion.

    Attributes:
        content: text of the answer.
        calls: tool calls of the answer.
        thought: reasoning that the server returned apart from the answer.
        refusal: text with which the model refused; empty if it did not refuse.
        finish: why the answer ended, see `FINISH`.
    """

    content: str
    calls: tuple[ToolCall, ...]
    thought: str
    refusal: str
    finish: Finish


def body_messages(messages: Sequence[Message], roles: Roles = AS_THEY_ARE) -> list[dict[str, Any]]:
    """The messages of a request's body, in the form `roles`.

    The tool messages after an assistant message with calls get the ids of the calls in order. Servers demand a result
    for every call. If a user message follows while calls have no result yet, it therefore becomes the result of the
    first of these calls. If a message of another role follows, each of these calls gets an empty result. A tool message
    becomes a user message if every call already has its result.
    """
    if roles.system != "system":
        messages = with_system(messages, roles.system)
    if roles.plain_calls:
        messages = [_plain(message) for message in messages]
    body = _bodies(messages)
    body = alternating(body) if roles.alternating else body
    if roles.filled:
        body = [one if one["content"] or "tool_calls" in one else {**one, "content": EMPTY} for one in body]
    return body


def _plain(message: Message) -> Message:
    """A message with its calls as text; the result of a tool becomes a user message."""
    if message.role == "tool":
        return Message("user", message.content)
    return Message(message.role, _written(message.content, message.calls)) if message.calls else message


def _bodies(messages: Sequence[Message]) -> list[dict[str, Any]]:
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
    """The content of a completion.

    Raises:
        ServerSays: the body holds an error in place of a completion.
        Unreadable: the answer is not a chat completion.
    """
    choices: Any = getattr(completion, "choices", None)
    choice = choices[0] if choices and isinstance(choices, list) else None
    message = getattr(choice, "message", None)
    ended = str(getattr(choice, "finish_reason", None) or "")
    _raise_error(completion, choice, ended)
    if message is None:
        raise Unreadable("the answer is not a chat completion")
    refusal = getattr(message, "refusal", None)
    found = ContentParts(refusals=[refusal] if isinstance(refusal, str) else [])
    content = getattr(message, "content", None)
    if isinstance(content, list | dict):
        found.add(content if isinstance(content, list) else [content])
    elif isinstance(content, str):
        found.texts.append(content)
    elif content is not None:
        raise Unreadable(f"the answer's content is of type {type(content).__name__}, not text")
    thought = next((said for name in THOUGHTS if isinstance(said := getattr(message, name, None), str) and said), "")
    words = re.split(r"[:\s]", ended.lower(), maxsplit=1)
    return Completion(
        content=sendable("".join(found.texts)),
        calls=(*_calls(getattr(message, "tool_calls", None)), *found.calls),
        thought=sendable(thought or "".join(found.thoughts)),
        refusal=sendable("".join(found.refusals)),
        finish=FINISH.get(words[0], "stop"),
    )


def _raise_error(completion: Any, choice: Any, ended: str) -> None:
    """Raise ServerSays if a successful answer holds an error (OpenRouter, gateways), or says that the server failed."""
    found = getattr(choice, "error", None) or getattr(completion, "error", None)
    if not found and choice is None:  # such as Gemini's `promptFeedback`, MiniMax's `base_resp`, or a list
        found = completion if isinstance(completion, dict | list) else getattr(completion, "model_extra", None)
    if found:
        given = words_of(found if isinstance(found, dict | list) else str(found))
        if given.text or given.codes:
            raise ServerSays(given)
    if ended.lower() in FAILED:
        raise ServerSays(ServerWords(f"the server ended the answer with finish_reason={ended!r}", status=500))


@dataclass
class ContentParts:
    """The content of an answer that is a list of parts."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)

    def add(self, parts: Sequence[Any]) -> None:
        """Read the parts; Unreadable for a part of an unknown type."""
        for part in parts:
            if isinstance(part, str):
                self.texts.append(part)
                continue
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            if kind is None and "reasoningContent" in part:  # Bedrock's Converse
                part, kind = part["reasoningContent"], "reasoning"
            elif kind is None and isinstance(part.get("text"), str):  # Bedrock's Converse, Gemini
                kind = "thinking" if part.get("thought") is True else "text"
            if kind in TEXT_PARTS and isinstance(part.get("text") or "", str):
                self.texts.append(part.get("text") or "")
            elif kind in THOUGHT_PARTS:
                self.thoughts.append(_thought(part, DEEPEST))
            elif kind == "refusal":
                self.refusals.append(str(part.get("refusal") or part.get("text") or ""))
            elif kind == "tool_use" and isinstance(part.get("name"), str):  # Anthropic
                arguments = json.dumps(part.get("input") or {}, ensure_ascii=False)
                self.calls.append(ToolCall(str(part.get("id") or ""), sendable(part["name"]), sendable(arguments)))
            elif kind not in SILENT_PARTS:
                raise Unreadable(f"the answer's content has a part of type {kind!r:.50}, which is no text")


def _thought(part: Any, depth: int) -> str:
    """The text of a part with reasoning, whose fields may hold parts again."""
    if isinstance(part, str) or depth == 0:
        return part if isinstance(part, str) else ""
    if isinstance(part, list):
        return "".join(_thought(one, depth - 1) for one in part)
    found = (part.get(name) for name in THOUGHT_FIELDS) if isinstance(part, dict) else ()
    return next((text for one in found if one and (text := _thought(one, depth - 1))), "")


def _calls(given: Any) -> tuple[ToolCall, ...]:
    found = []
    for number, one in enumerate(given if isinstance(given, list) else ()):
        function = getattr(one, "function", None)
        name, arguments = getattr(function, "name", None), getattr(function, "arguments", None)
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if not isinstance(name, str) or not name:
            raise Unreadable("a tool call of the answer has no name")
        text = arguments if isinstance(arguments, str) else "{}"
        found.append(ToolCall(str(getattr(one, "id", None) or f"call_{number}"), sendable(name), sendable(text)))
    return tuple(found)


def written(reply: Completion) -> str:
    """The answer as text: its content, then each call in the format `hermes`, which prompts can read."""
    return _written(reply.content, reply.calls)


def _written(content: str, asked: Sequence[ToolCall]) -> str:
    texts = [content] if content else []
    return "\n".join([*texts, *map(_written_call, asked)])


def unreadable(text: str) -> str:
    """A text that the server could not read as a tool call, as a malformed call in the format `hermes`."""
    bare = text.replace("<tool_call>", "").replace("</tool_call>", "").strip()
    wrapped = f"<tool_call>\n{bare}\n</tool_call>"
    if calls.load_format("hermes", ()).parse(wrapped).calls:  # the server has refused it, so it is not carried out
        wrapped = f"<tool_call>\n{json.dumps(bare)}\n</tool_call>"
    return wrapped


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


def of_request(request: Request, roles: Roles = AS_THEY_ARE) -> dict[str, Any]:
    """The fields `messages` and `tools` of a request's body."""
    tools = {"tools": [dict(tool) for tool in request.tools]} if request.tools else {}
    return {"messages": body_messages(request.messages, roles), **tools}
