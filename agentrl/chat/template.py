"""Encodes chats by a chat template: a whole prompt, or the tokens by which a prompt continues a path of tokens."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from agentrl.types import Message

PROBE = [Message("user", "u"), Message("assistant", "a")]
PROBE_TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "probe_the_template",
        "description": "p",
        "parameters": {
            "type": "object",
            "properties": {"x": {"type": "string", "description": "x"}},
            "required": ["x"],
        },
    },
}


# Messages with more than CACHED_CHARS characters (web pages, files) are seldom repeated, so their ids are not cached.
# 4096 messages of 1000 characters take about 20 MB. Admissible actions are short, and an environment may list thousands
# of them in every step. 32768 short answers take about 20 MB as well.
CACHED_TURNS, CACHED_CHARS = 4096, 1000
CACHED_ANSWERS, CACHED_ANSWER_CHARS = 32768, 200


class Chat:
    """Encodes messages by a tokenizer's chat template: a whole prompt, or the tokens after an assistant turn's end.

    Only the template writes special tokens. If a message or an answer contains the text of a special token (such as a
    web page with the text `<|im_end|>`), this text becomes ordinary tokens, so that no environment can end or forge a
    turn.

    Attributes:
        tokenizer: the transformers tokenizer.
        end_id: id of the token that ends an assistant turn. A sampled answer ends with this token, with a stop string,
            or at a token limit.
        has_tool_role: does the template render messages of the role `tool`, and append them to earlier turns?
    """

    def __init__(self, tokenizer: Any) -> None:
        """Raises ValueError if the template or the end token is missing, or if the template does not use the token."""
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError(
                "the tokenizer has no chat template: use an instruction-tuned model, or set its chat_template"
            )
        if tokenizer.eos_token_id is None:
            raise ValueError("the tokenizer has no end token (eos_token): set one that closes assistant turns")
        self.tokenizer = tokenizer
        self.end_id = int(tokenizer.eos_token_id)
        self.end_text = str(tokenizer.eos_token)
        self._special = _any_of(special_texts(tokenizer))
        closed = self.render(PROBE, reply=False)
        if self.end_text not in closed:
            raise ValueError(
                f"the chat template does not close assistant turns with {self.end_text!r}: set the "
                "tokenizer's eos_token to the token that does"
            )
        self._closed, self._after_end = closed, closed[closed.rindex(self.end_text) + len(self.end_text) :]
        self.has_tool_role = self._renders_tool_role()
        self._delta = lru_cache(maxsize=CACHED_TURNS)(self._encode_turn)
        self._answer = lru_cache(maxsize=CACHED_ANSWERS)(self._encode_answer)

    def render(self, messages: Sequence[Message], *, reply: bool, tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """The template's text of messages and of the schemas `tools`; `reply` adds the opening of an assistant turn."""
        chat = [{"role": m.role, "content": m.content, **({"name": m.name} if m.name else {})} for m in messages]
        try:
            text: str = self.tokenizer.apply_chat_template(
                chat, tools=list(tools) or None, tokenize=False, add_generation_prompt=reply
            )
        except Exception as error:  # a template is a program of the model's authors, which may raise anything
            why = " ".join(str(error).split())[:200] or type(error).__name__
            raise ValueError(
                f"the chat template cannot write the messages ({why}): use a template that transformers renders"
            ) from error
        return text

    def teaches(self, marks: Sequence[str]) -> bool:
        """Does the template describe tools, and a format of calls that contains all `marks`? False without marks."""
        if not marks:
            return False
        try:
            text = self.render(PROBE[:1], reply=True, tools=[PROBE_TOOL])
        except Exception:  # noqa: BLE001  a template may raise anything at what it does not support
            return False
        return all(mark in text for mark in (PROBE_TOOL["function"]["name"], *marks))

    def _renders_tool_role(self) -> bool:
        """Does the template render a message of the role `tool`, and append it to earlier turns?"""
        try:
            text = self.render([*PROBE, Message("tool", "what it said", "probe")], reply=True)
        except Exception:  # noqa: BLE001  see `teaches`
            return False
        return text.startswith(self._closed) and "what it said" in text[len(self._closed) :]

    def encode(self, text: str) -> np.ndarray:
        """[T] int64 ids of a text that the template wrote; each special token becomes one id, and no id is added."""
        return np.asarray(self.tokenizer.encode(text, add_special_tokens=False), np.int64)

    def encode_plain(self, text: str) -> np.ndarray:
        """[T] int64 ids of a text; if it contains the text of a special token, this text becomes ordinary tokens."""
        pieces = self._special.split(text)  # every second piece is the text of a special token
        if len(pieces) == 1:
            return self.encode(text)
        return np.concatenate([self._spell(p) if i % 2 else self.encode(p) for i, p in enumerate(pieces)])

    def _spell(self, special: str) -> np.ndarray:
        """[T] int64 ids of ordinary tokens that spell the text of a special token."""
        ids = self.tokenizer.encode(special, add_special_tokens=False, split_special_tokens=True)
        return np.asarray(ids, np.int64)

    def start(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> np.ndarray:
        """[T] int64 ids of a complete prompt with the schemas `tools`, and of the opening of an assistant turn."""
        masked = _Masked(messages, self._special, tools)
        return self._encode_masked(masked, self.render(masked.messages, reply=True, tools=masked.tools))

    def turn(self, *messages: Message) -> np.ndarray:
        """[T] int64 ids that follow the end token of an assistant turn: the messages, and the opening of the next turn.

        If the template has no role `tool` and a message has this role, all messages are joined into one user message.
        """
        if not self.has_tool_role and any(m.role == "tool" for m in messages):
            messages = (Message("user", "\n".join(m.content for m in messages)),)
        short = sum(len(m.content) for m in messages) <= CACHED_CHARS
        return self._delta(messages) if short else self._encode_turn(messages)

    def _encode_turn(self, messages: tuple[Message, ...]) -> np.ndarray:
        masked = _Masked(messages, self._special)
        rendered = self.render([*PROBE, *masked.messages], reply=True)
        if not rendered.startswith(self._closed):
            raise ValueError(
                "the chat template rewrites earlier turns, so a chat cannot be continued token by token: "
                "use context.name=last_k, or a template that only appends"
            )
        return self._encode_masked(masked, self._after_end + rendered[len(self._closed) :])

    def _encode_masked(self, masked: "_Masked", text: str) -> np.ndarray:
        """[T] int64 ids of the text that the template wrote for masked messages; marks become ordinary tokens."""
        pieces = masked.pieces(text)
        return np.concatenate([self._spell(p) if i % 2 else self.encode(p) for i, p in enumerate(pieces)])

    def answer(self, text: str, *, end: bool = True) -> np.ndarray:
        """[T] int64 ids of an assistant text that was not sampled, such as an expert's answer or an admissible action.

        `end`: add the end token; False if more text of the same assistant turn follows.
        """
        return self._answer(text, end) if len(text) <= CACHED_ANSWER_CHARS else self._encode_answer(text, end)

    def _encode_answer(self, text: str, end: bool) -> np.ndarray:
        ids = self.encode_plain(text)
        return np.append(ids, self.end_id) if end else ids

    def go_on(self, text: str, *, ended: bool, most: int | None = None) -> np.ndarray:
        """[T] int64 ids that continue an assistant turn by the first `most` tokens of a text (None: by the whole text).

        If the end token has `ended` the turn, the ids first open a new assistant turn.
        """
        opening = self.encode(self._after_end + self._opening()) if ended else np.zeros(0, np.int64)
        return np.concatenate([opening, self.encode_plain(text)[:most]])

    def _opening(self) -> str:
        """The text that the template writes before the text of an assistant turn."""
        question = self.render(PROBE[:1], reply=False)
        opened = self.render(PROBE[:1], reply=True)
        if not opened.startswith(question):
            raise ValueError("the chat template rewrites the question when an answer begins: use context.name=last_k")
        return opened[len(question) :]

    def clip(self, text: str, most: int) -> str:
        """The text, cut after its first `most` tokens."""
        ids = self.encode_plain(text)
        if len(ids) <= most:
            return text
        beginning: str = self.tokenizer.decode(ids[:most].tolist(), clean_up_tokenization_spaces=False)
        return beginning.rstrip("\ufffd")  # the last token may hold only a part of a character


class _Masked:
    """Messages and tool schemas in which marks replace the texts of special tokens.

    Marks stand in contents, roles and names of messages, and in keys and values of schemas. Templates copy the marks,
    and `pieces` removes the marks before a tokenizer reads the text.

    A mark is one private-use character that none of these texts holds, the number of the special token's text, and the
    character again. Equal texts get equal marks, because a template may compare a key of `properties` with `required`.
    """

    def __init__(
        self, messages: Sequence[Message], special: "re.Pattern[str]", tools: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        content = "".join([*("".join(m[:3]) for m in messages), json.dumps(list(tools), ensure_ascii=False)])
        self._edge = next(chr(c) for c in range(0xF0000, 0x10FFFE) if chr(c) not in content)
        self._numbers: dict[str, int] = {}  # special token's text -> its number
        self._special = special
        self.messages = [self._masked_message(m) for m in messages]
        self.tools = [self._marked(tool) for tool in tools]

    def _masked_message(self, message: Message) -> Message:
        role, content, name = (self._special.sub(self._mark, part) for part in message[:3])
        return Message(role, content, name)

    def _marked(self, value: Any) -> Any:
        """A JSON value with the texts inside it masked."""
        if isinstance(value, str):
            return self._special.sub(self._mark, value)
        if isinstance(value, Mapping):
            return {self._marked(key): self._marked(one) for key, one in value.items()}
        return [self._marked(one) for one in value] if isinstance(value, list | tuple) else value

    def _mark(self, match: "re.Match[str]") -> str:
        number = self._numbers.setdefault(match[0], len(self._numbers))
        return f"{self._edge}{number}{self._edge}"

    def pieces(self, text: str) -> list[str]:
        """The text cut at its marks: alternately template text and the text of a special token, template text first."""
        pieces, specials = text.split(self._edge), list(self._numbers)
        return [specials[int(piece)] if i % 2 else piece for i, piece in enumerate(pieces)]


def special_texts(tokenizer: Any) -> list[str]:
    """The texts that a tokenizer would read as special tokens, longest first.

    Added words that the tokenizer does not mark as special, such as `<think>`, are ordinary text.
    """
    added = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    return sorted({*added, *tokenizer.all_special_tokens}, key=lambda text: (-len(text), text))


def _any_of(texts: Sequence[str]) -> "re.Pattern[str]":
    """A pattern whose one group is any of the texts, tried in order; without texts it never matches."""
    return re.compile("(" + "|".join(map(re.escape, texts)) + ")" if texts else "(?!)()")


def template_report(chat: Chat) -> str:
    """A warning if the template drops the thinking of earlier turns, else empty.

    A prompt that continues a path of tokens keeps this thinking.
    """
    thought = [Message("user", "u"), Message("assistant", "<think>t</think>a"), Message("user", "v")]
    before = chat.render(thought[:2], reply=False)
    if chat.render(thought, reply=True).startswith(before):
        return ""
    return (
        "the chat template drops the thinking of turn 0 when turn 1 begins. With context `full`, the prompt keeps all "
        "sampled tokens, so the model sees its thinking in later turns; with context `last_k` it does not"
    )
