"""Messages as a chat template can write them: whole chats, and what follows a turn of the assistant."""

import datetime
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentrl.chat.masked import added_texts, any_of
from agentrl.chat.rendering import ChatMessage, Rendering, call_as_data, with_calls_as_text
from agentrl.chat.turns import SAID, TemplateReader, Turns, between, call_id, called, said
from agentrl.types import Message

Schemas = Sequence[Mapping[str, Any]]


class Writer:
    """Writes messages by the chat templates of a tokenizer.

    Args:
        tokenizer: the transformers tokenizer.
        now: the time that templates write which ask for it; None for the time of this call.

    Attributes:
        rendering: the templates.
        turns: False -> the turns of the template for chats without tools, True -> of that for chats with tools.
    """

    def __init__(self, tokenizer: Any, now: datetime.datetime | None) -> None:
        """Raises ValueError if the template is missing, or if it does not show where its turns end."""
        self.rendering = Rendering(tokenizer, now)
        words, eos = any_of(added_texts(tokenizer)), str(tokenizer.eos_token)
        plain = TemplateReader(self.rendering, words, eos, for_tools=False).read()
        two = self.rendering.two_templates
        self.turns = {
            False: plain,
            True: TemplateReader(self.rendering, words, eos, for_tools=True).read() if two else plain,
        }

    def chat(
        self, messages: Sequence[Message], *, reply: bool, tools: Schemas = (), for_tools: bool | None = None
    ) -> str:
        """The template's text of messages and of the schemas `tools`; `reply` adds the opening of an assistant turn.

        Messages that the template refuses or leaves out are written as it can: a system message becomes the beginning
        of the first user message, results of tools become user messages, neighbours of one role become one message,
        and calls get ids of nine letters and digits.

        Args:
            messages, reply, tools: see above.
            for_tools: use the template for chats with tools; None: if there are schemas.

        Raises:
            ValueError: the template cannot write the messages.
        """
        for_tools = bool(tools) if for_tools is None else for_tools
        turns = self.turns[for_tools]
        wanted = results_as_users(messages, turns)
        if not turns.has_system_role:
            wanted = without_system(wanted)
        refused: ValueError | None = None
        for some in _as_accepted(wanted):
            try:
                return self.rendering.text(self._data(some, turns), reply=reply, tools=tools, for_tools=for_tools)
            except ValueError as error:
                refused = refused or error
        assert refused is not None, "there is at least one form of the messages"
        raise refused

    def _data(self, messages: Sequence[Message], turns: Turns) -> list[ChatMessage]:
        """Messages as transformers takes them; calls become text if the template takes no calls."""
        found: list[ChatMessage] = []
        answered = 0  # results since the last message of the assistant
        ids: tuple[str, ...] = ()
        for message in messages:
            data: dict[str, Any] = {"role": message.role, "content": message.content}
            if message.calls and turns.calls is None:
                data["content"] = with_calls_as_text(message).content
            elif message.calls and turns.calls is not None:
                data["tool_calls"] = [call_as_data(call, turns.calls.text_arguments) for call in message.calls]
            if message.name:
                data["name"] = message.name
            if message.role == "assistant":
                answered, ids = 0, tuple(call.id for call in message.calls)
            elif message.role == "tool":
                data["tool_call_id"] = ids[answered] if answered < len(ids) else call_id(answered)
                answered += 1
            found.append(data)
        return found

    def behind_turn(self, messages: Sequence[Message], for_tools: bool, by_calls: bool) -> str:
        """The text behind the end of an assistant turn that messages follow; `by_calls`: the turn had calls as data."""
        turns = self.turns[for_tools]
        names = [m.name or "f" for m in messages if m.role == "tool"]
        assistants = [said(SAID)]
        if by_calls and turns.calls is not None:
            assistants = [called(some, turns.calls.text_arguments) for some in (names, names[:1])]
        refused: ValueError | None = None
        for turn in assistants:
            for later in (messages, alternating(without_later_system(messages))):
                asked = [{"role": "user", "content": "u"}, turn, *self._data(later, turns)]
                try:
                    text = self.rendering.text(asked, reply=True, for_tools=for_tools)
                except ValueError as error:
                    refused = refused or error
                    continue
                behind = between(text, SAID)
                if behind is not None:
                    return _behind_end(behind, turns, by_calls)
        raise refused or ValueError("the chat template does not write the words of the assistant")


def _behind_end(behind: str, turns: Turns, calls: bool) -> str:
    """The part of a text behind a turn's last word that follows the token which ends the turn."""
    if not turns.end:
        rest = behind.removeprefix(turns.calls.rest) if calls and turns.calls is not None else behind
        words = sorted(turns.next_words.values(), key=len, reverse=True)
        return next((rest[rest.index(word) + len(word) :] for word in words if rest.startswith(word)), rest)
    ends = {turns.past_end, turns.end} if not (calls and turns.calls) else {turns.calls.end}
    place, end = min((behind.index(end), end) for end in ends if end in behind)
    return behind[place + len(end) :]


def _as_accepted(messages: list[Message]) -> Iterator[list[Message]]:
    """The messages, then forms of the messages that stricter templates accept."""
    joined = alternating(messages)
    yield messages
    if joined != messages:
        yield joined
    if any(message.calls for message in messages):
        yield with_strict_ids(messages)
        if joined != messages:
            yield with_strict_ids(joined)


def with_strict_ids(messages: Sequence[Message]) -> list[Message]:
    """The messages; the calls have ids as the strictest templates want them (see `call_id`)."""
    numbers = itertools.count()
    return [
        m._replace(calls=tuple(call._replace(id=call_id(next(numbers))) for call in m.calls)) if m.calls else m
        for m in messages
    ]


def results_as_users(messages: Sequence[Message], turns: Turns) -> list[Message]:
    """The messages, in which neighbouring results are one user message where the template writes no results."""
    found: list[Message] = []
    called = False
    for message in messages:
        if message.role == "assistant":
            called = bool(message.calls)
        if message.role != "tool" or turns.results_by_words or (called and turns.calls is not None):
            found.append(message)
        elif found and found[-1].role == "results":
            found[-1] = Message("results", f"{found[-1].content}\n{message.content}")
        else:
            found.append(Message("results", message.content))
    return [m._replace(role="user") if m.role == "results" else m for m in found]


def without_system(messages: Sequence[Message]) -> list[Message]:
    """The messages with system messages as user messages; the first one begins the user message that follows it."""
    found: list[Message] = []
    for message in messages:
        if message.role == "user" and found and found[-1].role == "system":
            found[-1] = Message("user", f"{found[-1].content}\n\n{message.content}")
        else:
            found.append(message)
    return [m._replace(role="user") if m.role == "system" else m for m in found]


def without_later_system(messages: Sequence[Message]) -> list[Message]:
    """The messages, none of which is a system message."""
    return [m._replace(role="user") if m.role == "system" else m for m in messages]


def alternating(messages: Sequence[Message]) -> list[Message]:
    """The messages with neighbouring user messages joined, and system messages behind the first one as user messages,
    for templates that want users and assistants in turn."""
    found: list[Message] = []
    for number, message in enumerate(messages):
        if message.role == "system" and number:
            message = message._replace(role="user")
        if message.role == "user" and found and found[-1].role == "user":
            found[-1] = Message("user", f"{found[-1].content}\n\n{message.content}")
        else:
            found.append(message)
    return found
