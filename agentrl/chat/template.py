"""Chat templates as token streams: prompts that continue a path without encoding sampled text again."""

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


# Longer turns (web pages, files) hardly return; 4096 turns of 1000 characters are some 20 MB, as are 32768 answers of
# an admissible action's length, of which an environment may list thousands in every step.
CACHED_TURNS, CACHED_CHARS = 4096, 1000
CACHED_ANSWERS, CACHED_ANSWER_CHARS = 32768, 200


class Chat:
    """A tokenizer's chat template, cut at the end token of assistant turns.

    Only the template writes special tokens: one that is spelled out inside a message or an answer (a web page that says
    `<|im_end|>`) becomes ordinary text tokens, so that no environment can end or forge a turn.

    Attributes:
        tokenizer: the transformers tokenizer.
        end_id: the token that ends an assistant turn; sampled answers end with it.
        has_tool_role: the template appends tools' messages as such.
    """

    def __init__(self, tokenizer: Any) -> None:
        """ValueError: the template is missing or does not close assistant turns with the end token."""
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError("the tokenizer has no chat template: use an instruction-tuned model, or give it one")
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
        """The template's text; `reply` adds the opening of an assistant turn, `tools` are schemas it writes."""
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
        """Does the template, given tools, write them and how to call them, in a format whose `marks` are these?"""
        if not marks:
            return False
        try:
            text = self.render(PROBE[:1], reply=True, tools=[PROBE_TOOL])
        except Exception:  # noqa: BLE001  a template may raise anything at what it does not support
            return False
        return all(mark in text for mark in (PROBE_TOOL["function"]["name"], *marks))

    def _renders_tool_role(self) -> bool:
        """Does the template append a tool's message as such?"""
        try:
            text = self.render([*PROBE, Message("tool", "what it said", "probe")], reply=True)
        except Exception:  # noqa: BLE001  see `teaches`
            return False
        return text.startswith(self._closed) and "what it said" in text[len(self._closed) :]

    def encode(self, text: str) -> np.ndarray:
        """[T] int64 ids of a template's text: its special tokens are one token each; nothing is added."""
        return np.asarray(self.tokenizer.encode(text, add_special_tokens=False), np.int64)

    def encode_plain(self, text: str) -> np.ndarray:
        """[T] int64 ids of a text in which special tokens are spelled out as any other word is."""
        pieces = self._special.split(text)  # every other one is a special token's text
        if len(pieces) == 1:
            return self.encode(text)
        return np.concatenate([self._spell(p) if i % 2 else self.encode(p) for i, p in enumerate(pieces)])

    def _spell(self, special: str) -> np.ndarray:
        """[T] int64 ids of a special token's text that are not the special token."""
        ids = self.tokenizer.encode(special, add_special_tokens=False, split_special_tokens=True)
        return np.asarray(ids, np.int64)

    def start(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> np.ndarray:
        """[T] int64 ids of a whole prompt, assistant turn opened; the template writes `tools` if there are any."""
        masked = _Masked(messages, self._special, tools)
        return self._encode_masked(masked, self.render(masked.messages, reply=True, tools=masked.tools))

    def turn(self, *messages: Message) -> np.ndarray:
        """[T] int64 ids that follow the end token of an assistant turn: the next messages, assistant turn opened.

        A template that has no role for tools gets their words in one user message.
        """
        if not self.has_tool_role and any(m.role == "tool" for m in messages):
            messages = (Message("user", "\n".join(m.content for m in messages)),)
        short = sum(len(m.content) for m in messages) <= CACHED_CHARS
        return self._delta(messages) if short else self._encode_turn(messages)

    def _encode_turn(self, messages: tuple[Message, ...]) -> np.ndarray:
        masked = _Masked(messages, self._special)
        whole = self.render([*PROBE, *masked.messages], reply=True)
        if not whole.startswith(self._closed):
            raise ValueError(
                "the chat template rewrites earlier turns, so a chat cannot be continued token by token: "
                "use context.name=last_k, or a template that only appends"
            )
        return self._encode_masked(masked, self._after_end + whole[len(self._closed) :])

    def _encode_masked(self, masked: "_Masked", text: str) -> np.ndarray:
        """[T] int64 ids of a template's text of masked messages."""
        pieces = masked.pieces(text)
        return np.concatenate([self._spell(p) if i % 2 else self.encode(p) for i, p in enumerate(pieces)])

    def answer(self, text: str, *, end: bool = True) -> np.ndarray:
        """[T] int64 ids of an assistant text given in words (demonstrations, choices), end token included unless the
        turn goes on after it."""
        return self._answer(text, end) if len(text) <= CACHED_ANSWER_CHARS else self._encode_answer(text, end)

    def _encode_answer(self, text: str, end: bool) -> np.ndarray:
        ids = self.encode_plain(text)
        return np.append(ids, self.end_id) if end else ids

    def go_on(self, text: str, *, ended: bool, most: int | None = None) -> np.ndarray:
        """[T] int64 ids of a text inside a running assistant turn, the first `most` of them; a turn that its end token
        has `ended` is opened again before it."""
        again = self.encode(self._after_end + self._opening()) if ended else np.zeros(0, np.int64)
        return np.concatenate([again, self.encode_plain(text)[:most]])

    def _opening(self) -> str:
        """What the template writes before an assistant's words."""
        asked = self.render(PROBE[:1], reply=False)
        opened = self.render(PROBE[:1], reply=True)
        if not opened.startswith(asked):
            raise ValueError("the chat template rewrites the question once an answer begins: use context.name=last_k")
        return opened[len(asked) :]

    def clip(self, text: str, most: int) -> str:
        """The text, or what its first `most` tokens spell."""
        ids = self.encode_plain(text)
        if len(ids) <= most:
            return text
        cut: str = self.tokenizer.decode(ids[:most].tolist(), clean_up_tokenization_spaces=False)
        return cut.rstrip("\ufffd")  # a character of several tokens that was cut through


class _Masked:
    """Messages whose special-token texts are replaced by marks, which survive a template and never meet a tokenizer.

    A mark is one private-use character that no message holds, a number, and the character again.
    """

    def __init__(
        self, messages: Sequence[Message], special: "re.Pattern[str]", tools: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        whole = "".join([*(m.content for m in messages), json.dumps(list(tools), ensure_ascii=False)])
        self._edge = next(chr(c) for c in range(0xF0000, 0x10FFFE) if chr(c) not in whole)
        self._found: list[str] = []
        self._special = special
        self.messages = [m._replace(content=special.sub(self._mark, m.content)) for m in messages]
        self.tools = [self._marked(tool) for tool in tools]

    def _marked(self, value: Any) -> Any:
        """A JSON value with the texts inside it masked."""
        if isinstance(value, str):
            return self._special.sub(self._mark, value)
        if isinstance(value, Mapping):
            return {key: self._marked(one) for key, one in value.items()}
        return [self._marked(one) for one in value] if isinstance(value, list | tuple) else value

    def _mark(self, found: "re.Match[str]") -> str:
        self._found.append(found[0])
        return f"{self._edge}{len(self._found) - 1}{self._edge}"

    def pieces(self, text: str) -> list[str]:
        """The text cut at its marks: template text and special-token texts in turn, beginning with the former."""
        pieces = text.split(self._edge)
        return [self._found[int(piece)] if i % 2 else piece for i, piece in enumerate(pieces)]


def special_texts(tokenizer: Any) -> list[str]:
    """The texts a tokenizer would read as control tokens; added words such as `<think>` that it does not call special
    are ordinary."""
    added = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    return sorted({*added, *tokenizer.all_special_tokens}, key=lambda text: (-len(text), text))


def _any_of(texts: Sequence[str]) -> "re.Pattern[str]":
    """Finds the longest of some texts, as one group; never anything if there are none."""
    return re.compile("(" + "|".join(map(re.escape, texts)) + ")" if texts else "(?!)()")


def template_report(chat: Chat) -> str:
    """Which turn, if any, a template would render differently than the append-only tokens; empty if none."""
    thought = [Message("user", "u"), Message("assistant", "<think>t</think>a"), Message("user", "v")]
    before = chat.render(thought[:2], reply=False)
    if chat.render(thought, reply=True).startswith(before):
        return ""
    return (
        "the chat template drops the thinking of turn 0 once turn 1 begins; context `full` keeps what was "
        "sampled, so the model sees its own thinking in later turns (context `last_k` does not)"
    )
