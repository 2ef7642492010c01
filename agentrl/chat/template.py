"""Encodes chats by a chat template: a whole prompt, or the tokens by which a prompt continues a path of tokens."""

import datetime
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from agentrl.chat.encoding import PieceEncoder
from agentrl.chat.masked import Masked, added_texts, any_of, special_texts
from agentrl.chat.rendering import ChatMessage, Rendering, call_as_data, with_calls_as_text
from agentrl.chat.thoughts import has_thought, opened_thought
from agentrl.chat.turns import PROBE_TOOL, SAID, TemplateReader, Turns, between, call_id, called, said
from agentrl.types import Message

Schemas = Sequence[Mapping[str, Any]]

# Messages with more than CACHED_CHARS characters (web pages, files) are seldom repeated, so their ids are not cached.
# 4096 messages of 1000 characters take about 20 MB. Admissible actions are short, and an environment may list thousands
# of them in every step. 32768 short answers take about 20 MB as well.
CACHED_TURNS, CACHED_CHARS = 4096, 1000
CACHED_ANSWERS, CACHED_ANSWER_CHARS = 32768, 200


class Chat:
    """Encodes messages by a tokenizer's chat template: a whole prompt, or the tokens after an assistant turn's end.

    Only the template writes added words of the tokenizer, such as `<|im_end|>`. If a message contains the text of a
    special token, or of an added word that the template itself writes around messages, this text becomes ordinary
    tokens, so that no environment can end or forge a turn. In the assistant's own texts, the words that the template
    writes within its turns (thoughts, calls) stay tokens.

    A tokenizer may have one template for chats with tools and one for other chats. The prompt, the tools and the
    results of the tools are then written by the same one.

    Args:
        tokenizer: the transformers tokenizer.
        now: the time that templates write which ask for it; None for the time of this call. It does not change.

    Attributes:
        tokenizer: the transformers tokenizer.
        end_id: id of the token that ends an assistant turn.
        end_ids: ids of all tokens that end an answer. A sampled answer ends with one of them, with a stop string, or at
            a token limit.
        has_tool_role: does the template write messages of the role `tool` behind a turn of the assistant?
        thought: the text of the thought that every prompt opens, such as "<think>\\n"; empty if prompts open none. An
            answer then begins inside a thought.
        now: the time that templates write.
    """

    def __init__(self, tokenizer: Any, now: datetime.datetime | None = None) -> None:
        """Raises ValueError if the template or the end token is missing, or if the template does not use the token."""
        self._rendering = Rendering(tokenizer, now)
        if tokenizer.eos_token_id is None:
            raise ValueError("the tokenizer has no end token (eos_token): set one that closes assistant turns")
        self.tokenizer, self.now = tokenizer, self._rendering.now
        texts = added_texts(tokenizer)
        plain = self._read(texts, for_tools=False)
        self._turns = {False: plain, True: self._read(texts, True) if self._rendering.two_templates else plain}
        ends = dict.fromkeys(end for turns in (plain, self._turns[True]) for end in turns.ends)
        self.end_text = plain.end or str(tokenizer.eos_token)
        self.end_id = self._id(self.end_text)
        self.end_ids = frozenset({self.end_id, int(tokenizer.eos_token_id), *map(self._id, ends)})
        self.has_tool_role = self._turns[True].has_tool_role
        thought = opened_thought(plain.opening)
        self.thought = "" if thought is None else plain.opening[plain.opening.lower().rindex(thought.opening.lower()) :]
        written = plain.written | self._turns[True].written
        within = plain.within | self._turns[True].within
        special = frozenset(special_texts(tokenizer))
        self._in_content, self._in_answers = any_of(special | written), any_of(special | (written - within))
        chat = [Message("user", "a b"), Message("assistant", "a b"), Message("user", "a b")]
        cut = any_of(texts).split(self.render(chat, reply=True))  # every second piece is an added word
        joints = [(plain.before, f"{plain.lead}yes"), *zip(cut[1::2], cut[2::2], strict=True)]
        self._pieces = PieceEncoder(tokenizer, joints)
        self._delta = lru_cache(maxsize=CACHED_TURNS)(self._encode_turn)
        self._answer = lru_cache(maxsize=CACHED_ANSWERS)(self._encode_answer)

    def _read(self, texts: Sequence[str], for_tools: bool) -> Turns:
        return TemplateReader(self._rendering, any_of(texts), str(self.tokenizer.eos_token), for_tools).read()

    def _id(self, text: str) -> int:
        return int(self.tokenizer.convert_tokens_to_ids(text))

    @property
    def turns(self) -> Turns:
        """The turns of the template for chats with tools; most tokenizers have one template."""
        return self._turns[True]

    @property
    def reads_clock(self) -> bool:
        """Does the template write the time?"""
        return self._rendering.reads_clock

    def render(
        self, messages: Sequence[Message], *, reply: bool, tools: Schemas = (), for_tools: bool | None = None
    ) -> str:
        """The template's text of messages and of the schemas `tools`; `reply` adds the opening of an assistant turn.

        Messages that the template refuses or leaves out are written as it can: a system message becomes the beginning
        of the first user message, results of tools become user messages, neighbours of one role become one message.

        Args:
            messages, reply, tools: see above.
            for_tools: use the template for chats with tools; None: if there are schemas.

        Raises:
            ValueError: the template cannot write the messages.
        """
        for_tools = bool(tools) if for_tools is None else for_tools
        turns = self._turns[for_tools]
        wanted = results_as_users(messages, turns)
        if not turns.has_system_role:
            wanted = without_system(wanted)
        try:
            return self._rendering.text(self._data(wanted, turns), reply=reply, tools=tools, for_tools=for_tools)
        except ValueError:
            joined = alternating(wanted)
            if joined == wanted:
                raise
        return self._rendering.text(self._data(joined, turns), reply=reply, tools=tools, for_tools=for_tools)

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

    def teaches(self, marks: Sequence[str]) -> bool:
        """Does the template describe tools, and a format of calls that contains all `marks`? False without marks."""
        if not marks:
            return False
        try:
            text = self.render([Message("user", "u")], reply=True, tools=[PROBE_TOOL])
        except Exception:  # noqa: BLE001  a template may raise anything at what it does not support
            return False
        return all(mark in text for mark in (PROBE_TOOL["function"]["name"], *marks))

    def encode(self, text: str) -> np.ndarray:
        """[T] int64 ids of a text that the template wrote; each special token becomes one id, and no id is added."""
        return self._pieces.whole(text)

    def encode_plain(self, text: str) -> np.ndarray:
        """[T] int64 ids of a text inside a message; the text of a special token in it becomes ordinary tokens."""
        return self._encode_pieces(self._in_content.split(text), "")

    def _encode_pieces(self, pieces: Sequence[str], beginning: str | None) -> np.ndarray:
        """[T] int64 ids of pieces, alternately text and the text of an added word that becomes ordinary tokens.

        Args:
            pieces: the pieces.
            beginning: the text before the first piece; empty for some ordinary text; None at the beginning of a chat.
        """
        first = self._pieces.whole(pieces[0]) if beginning is None else self._pieces.piece(pieces[0], beginning)
        if len(pieces) == 1:
            return first
        rest = (self._pieces.spelled(p) if i % 2 else self._pieces.piece(p) for i, p in enumerate(pieces[1:], 1))
        return np.concatenate([first, *rest])

    def start(self, messages: Sequence[Message], tools: Schemas = ()) -> np.ndarray:
        """[T] int64 ids of a complete prompt with the schemas `tools`, and of the opening of an assistant turn."""
        masked = Masked(messages, self._in_content, self._in_answers, tools)
        text = self.render(masked.messages, reply=True, tools=masked.tools)
        return self._encode_pieces(masked.pieces(text), None)

    def turn(self, *messages: Message, tools: bool = False, end: int | None = None) -> np.ndarray:
        """[T] int64 ids that follow the end token of an assistant turn: the messages, and the opening of the next turn.

        Messages of the role `tool` are joined into one user message where the template does not write them.

        Args:
            messages: the messages.
            tools: the chat has tools that the template describes.
            end: id of the token that ended the turn; None for the one that usually does.
        """
        turns = self._turns[tools]
        by_calls = turns.calls is not None and turns.calls.end != turns.end and end == self._id(turns.calls.end)
        if any(m.role == "tool" for m in messages) and not (turns.results_by_words or by_calls):
            if end is not None or turns.calls is None:
                messages = (Message("user", "\n".join(m.content for m in messages)),)
            by_calls = end is None and turns.calls is not None
        short = sum(len(m.content) for m in messages) <= CACHED_CHARS
        encode = self._delta if short else self._encode_turn
        return encode(messages, tools, by_calls)

    def after(self, path: np.ndarray, *messages: Message, tools: bool = False) -> np.ndarray:
        """[T] int64 ids that continue a path of tokens by messages and the opening of the next turn; see `turn`.

        If no end token ends the path, because the answer was cut off, the turn is closed first.
        """
        last = int(path[-1]) if len(path) else -1
        turns = self._turns[tools]
        added = self.turn(*messages, tools=tools, end=last)
        if turns.end:
            return added if last in self.end_ids else np.concatenate([[self.end_id], added])
        word = self._id(turns.next_words.get(messages[0].role) or turns.next_words["user"])
        return added if last == word else np.concatenate([[word], added])

    def _encode_turn(self, messages: tuple[Message, ...], tools: bool, by_calls: bool) -> np.ndarray:
        turns = self._turns[tools]
        if turns.rewrites:
            raise ValueError(
                "the chat template rewrites earlier turns, so a chat cannot be continued token by token: "
                "use context.name=last_k, or a template that only appends"
            )
        masked = Masked(messages, self._in_content, self._in_answers)
        text = self._behind_turn(masked.messages, turns, tools, by_calls)
        return self._encode_pieces(masked.pieces(text), turns.past_end or turns.next_words["user"])

    def _behind_turn(self, messages: Sequence[Message], turns: Turns, for_tools: bool, by_calls: bool) -> str:
        """The text behind the end of an assistant turn that messages follow; `by_calls`: the turn had calls as data."""
        names = [m.name or "f" for m in messages if m.role == "tool"]
        assistants = [said(SAID)]
        if by_calls and turns.calls is not None:
            assistants = [called(some, turns.calls.text_arguments) for some in (names, names[:1])]
        refused: ValueError | None = None
        for turn in assistants:
            for later in (messages, alternating(without_later_system(messages))):
                asked = [{"role": "user", "content": "u"}, turn, *self._data(later, turns)]
                try:
                    text = self._rendering.text(asked, reply=True, for_tools=for_tools)
                except ValueError as error:
                    refused = refused or error
                    continue
                behind = between(text, SAID)
                if behind is not None:
                    return _behind_end(behind, turns, by_calls)
        raise refused or ValueError("the chat template does not write the words of the assistant")

    def answer(self, text: str, *, end: bool = True, prompt: np.ndarray | None = None) -> np.ndarray:
        """[T] int64 ids of an assistant text that was not sampled, such as an expert's answer or an admissible action.

        What the template writes between the opening of a turn and the words of an answer comes first, such as the end
        of a thought that the prompt has opened, unless the text begins with a thought of its own.

        Args:
            text: the text.
            end: add the end token; False if more text of the same assistant turn follows, or comes before.
            prompt: [P] int64 ids of the prompt, because some templates open no turn behind results of tools; None if
                the prompt ends with the usual opening.
        """
        led = end and self._opened(prompt)
        encode = self._answer if len(text) <= CACHED_ANSWER_CHARS else self._encode_answer
        return encode(text, end, led)

    def _opened(self, prompt: np.ndarray | None) -> bool:
        """Does a prompt end with the usual opening of a turn?"""
        ids = self._opening_ids
        return prompt is None or not len(ids) or np.array_equal(prompt[-len(ids) :], ids)

    @cached_property
    def _opening_ids(self) -> np.ndarray:
        before = self.turns.before.removesuffix(self.turns.opening)
        return self._pieces.piece(self.turns.opening, before)

    def _encode_answer(self, text: str, end: bool, led: bool) -> np.ndarray:
        turns = self.turns
        lead, text = self._led(text) if led else ("", text)
        masked = Masked([Message("assistant", text)], self._in_content, self._in_answers)
        pieces = masked.pieces(masked.messages[0].content)
        if end:
            pieces = [lead + pieces[0], *pieces[1:]]
            pieces[-1] += turns.closing.removesuffix(turns.end)
        ids = self._encode_pieces(pieces, turns.before)
        return np.append(ids, self._end_of(text)) if end else ids

    def _led(self, text: str) -> tuple[str, str]:
        """(what the template writes before an answer, the answer without the opening tag that the prompt has)."""
        begun = text.lstrip()
        for opened in (self.thought, self.thought.strip()):
            if opened and begun.lower().startswith(opened.lower()):
                return "", begun[len(opened) :]
        if has_thought(text):
            return "", text
        return self.turns.lead, text

    def _end_of(self, text: str) -> int:
        """The id of the token that ends an answer: an answer with a call may end in another way."""
        turns = self.turns
        calls = turns.calls is not None and turns.calls.word and turns.calls.word in text
        if calls and turns.calls is not None and turns.calls.end:
            return self._id(turns.calls.end)
        if not turns.end:
            return self._id(turns.next_words.get("tool" if calls else "user") or turns.next_words["user"])
        return self.end_id

    def heard(self, text: str, ids: np.ndarray, prompt: np.ndarray | None = None) -> str:
        """An answer as parsers read it: if the prompt has opened a thought, with the tag that opens it.

        Args:
            text: the answer's text.
            ids: [T] int64, its token ids. The text of an expert's or a listed answer does not hold what `answer` writes
                before it, so it is not inside the thought.
            prompt: see `answer`.
        """
        own = text.lstrip().lower().startswith(self.thought.strip().lower())
        if not self.thought or own or not self._opened(prompt):
            return text
        lead = self._lead_ids
        if len(lead) and np.array_equal(ids[: len(lead)], lead) and not text.startswith(self.turns.lead):
            return text
        return self.thought + text

    @cached_property
    def _lead_ids(self) -> np.ndarray:
        return self._pieces.piece(self.turns.lead, self.turns.before)

    def go_on(self, text: str, *, ended: bool, most: int | None = None) -> np.ndarray:
        """[T] int64 ids that continue an assistant turn by the first `most` tokens of a text (None: by the whole text).

        If the end token has `ended` the turn, the ids first open a new assistant turn.
        """
        turns = self.turns
        opening = turns.after_end + turns.opening
        opened = self._pieces.piece(opening, self.end_text) if ended else np.zeros(0, np.int64)
        pieces = self._in_content.split(text)
        return np.concatenate([opened, self._encode_pieces(pieces, opening if ended else "")[:most]])

    def clip(self, text: str, most: int) -> str:
        """The text, cut after its first `most` tokens."""
        ids = self.encode_plain(text)
        if len(ids) <= most:
            return text
        beginning: str = self.tokenizer.decode(ids[:most].tolist(), clean_up_tokenization_spaces=False)
        return beginning.rstrip("\ufffd")  # the last token may hold only a part of a character


def _behind_end(behind: str, turns: Turns, calls: bool) -> str:
    """The part of a text behind a turn's last word that follows the token which ends the turn."""
    if not turns.end:
        rest = behind.removeprefix(turns.calls.rest) if calls and turns.calls is not None else behind
        words = sorted(turns.next_words.values(), key=len, reverse=True)
        return next((rest[rest.index(word) + len(word) :] for word in words if rest.startswith(word)), rest)
    ends = {turns.past_end, turns.end} if not (calls and turns.calls) else {turns.calls.end}
    place, end = min((behind.index(end), end) for end in ends if end in behind)
    return behind[place + len(end) :]


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
