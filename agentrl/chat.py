"""Chat templates as token streams: prompts that continue a path without encoding sampled text again."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from agentrl.types import Message

PROBE = [Message("user", "u"), Message("assistant", "a")]


class Chat:
    """A tokenizer's chat template, cut at the end token of assistant turns.

    Attributes:
        tokenizer: the transformers tokenizer.
        end_id: the token that ends an assistant turn; sampled answers end with it.
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
        closed = self.render(PROBE, reply=False)
        if self.end_text not in closed:
            raise ValueError(
                f"the chat template does not close assistant turns with {self.end_text!r}: set the "
                "tokenizer's eos_token to the token that does"
            )
        self._closed, self._after_end = closed, closed[closed.rindex(self.end_text) + len(self.end_text) :]
        self._delta = lru_cache(maxsize=65536)(self._encode_turn)
        self._answer = lru_cache(maxsize=65536)(self._encode_answer)

    def render(self, messages: Sequence[Message], *, reply: bool) -> str:
        """The template's text; `reply` adds the opening of an assistant turn."""
        chat = [{"role": m.role, "content": m.content} for m in messages]
        text: str = self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=reply)
        return text

    def encode(self, text: str) -> np.ndarray:
        """[T] int64 ids of a text that holds its special tokens as words; nothing is added."""
        return np.asarray(self.tokenizer.encode(text, add_special_tokens=False), np.int64)

    def start(self, messages: Sequence[Message]) -> np.ndarray:
        """[T] int64 ids of a whole prompt, assistant turn opened."""
        return self.encode(self.render(messages, reply=True))

    def turn(self, message: Message) -> np.ndarray:
        """[T] int64 ids that follow the end token of an assistant turn: the next message, assistant turn
        opened."""
        return self._delta(message)

    def _encode_turn(self, message: Message) -> np.ndarray:
        whole = self.render([*PROBE, message], reply=True)
        if not whole.startswith(self._closed):
            raise ValueError(
                "the chat template rewrites earlier turns, so a chat cannot be continued token by token: "
                "use context.name=last_k, or a template that only appends"
            )
        return self.encode(self._after_end + whole[len(self._closed) :])

    def answer(self, text: str) -> np.ndarray:
        """[T] int64 ids of an assistant text given in words (demonstrations, choices), end token included."""
        return self._answer(text)

    def _encode_answer(self, text: str) -> np.ndarray:
        return np.append(self.encode(text), self.end_id)


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
