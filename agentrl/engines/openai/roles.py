"""Rewrites the messages of requests for servers that refuse the roles of the messages, or their order.

Some chat templates know no system message (Gemma 1 and 2), some demand user and assistant messages in turn (Gemma,
Mistral 7B), some refuse a user message behind the result of a tool (Mistral), and some an empty answer of the model
(Mistral, Anthropic, Bedrock). The texts of the messages stay the same; only the roles change, messages are joined, and
a message without a text gets one.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from agentrl.engines.openai.refusals import Kind
from agentrl.types import Message

SystemRole = Literal["system", "developer", "user"]
BETWEEN = "\n\n"  # between the texts of messages that are joined
EMPTY = "(empty)"  # in place of no text, see `Roles.filled`


class Roles(NamedTuple):
    """The form in which messages go to the server.

    Attributes:
        system: role of the system message; `user` joins its text to the first user message.
        alternating: messages of one role in a row are joined, and a user message behind the result of a tool becomes a
            part of this result.
        plain_calls: tool calls are written as text, and the results of tools become user messages.
        filled: a message with neither a text nor calls has the text `EMPTY`.
    """

    system: SystemRole = "system"
    alternating: bool = False
    plain_calls: bool = False
    filled: bool = False


def with_system(messages: Sequence[Message], role: SystemRole) -> list[Message]:
    """The messages with another role of the system messages; see `Roles`."""
    if role != "user":
        return [m._replace(role=role) if m.role == "system" else m for m in messages]
    count = next((n for n, m in enumerate(messages) if m.role != "system"), len(messages))
    system, rest = BETWEEN.join(m.content for m in messages[:count]), list(messages[count:])
    rest = [m._replace(role="user") if m.role == "system" else m for m in rest]
    if not count:
        return rest
    if rest and rest[0].role == "user":
        return [rest[0]._replace(content=f"{system}{BETWEEN}{rest[0].content}"), *rest[1:]]
    return [Message("user", system), *rest]


def alternating(body: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages of a request's body, with messages of one role in a row joined; see `Roles`."""
    joined: list[dict[str, Any]] = []
    for message in body:
        last = joined[-1] if joined else {"role": ""}
        same = last["role"] == message["role"] and message["role"] != "tool" and "tool_calls" not in last
        if same or (last["role"] == "tool" and message["role"] == "user"):
            texts = [text for text in (last["content"], message["content"]) if text]
            joined[-1] = {**message, **last, "content": BETWEEN.join(texts) if texts else last["content"]}
        else:
            joined.append(message)
    return joined


def steps(kind: Kind, words: str, now: Roles) -> list[Roles]:
    """Other forms of the messages that may help after a refusal, in the order in which they are tried.

    Args:
        kind: the kind of the refusal.
        words: the server's words.
        now: the form of the refused request.
    """
    user, plain = now._replace(system="user"), now._replace(plain_calls=True, alternating=True)
    joined = now._replace(alternating=True)
    if kind == "order":
        # The template of Mistral 7B v0.2 calls a system message a wrong order.
        return [joined, user._replace(alternating=True), plain, plain._replace(system="user")]
    if kind == "empty":
        return [now._replace(filled=True)]
    if kind != "system":
        return []
    developer = [now._replace(system="developer")] if "developer" in words.lower() and now.system == "system" else []
    return [*developer, user, plain, plain._replace(system="user")]
