"""A memory of fixed size that is overwritten: one conversation per chunk of text that is read, and one per action.

Formula: `memory_i = model(task, memory_{i-1}, chunk_i)`, `action = model(task, memory_n)`.

Source: MemAgent, arXiv:2507.02259. An observation is split into n chunks. For each chunk the model sees the task, its
memory and the chunk, and writes a new memory. After the last chunk the model chooses an action from the task and the
memory; the observation's text is not shown again. Each of these conversations is a step with a prompt of its own.
`credit.name=multi_conversation` gives every step the advantage of its episode.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from pydantic import BaseModel, Field

from agentrl.chat import Chat
from agentrl.env import Prompt
from agentrl.rollout import Ask, History, fresh
from agentrl.types import Rewrite


class Config(BaseModel, frozen=True, extra="forbid"):
    """chunk_tokens: largest number of tokens of a chunk (of words, for a policy without a tokenizer). memory_tokens:
    largest number of tokens of the memory. memory: text before the memory in a prompt. section: text before the chunk
    in a prompt. instruction: text after the chunk, which asks for the new memory. empty: text that stands for the
    memory until the model has written one."""

    chunk_tokens: int = Field(5000, ge=1)
    memory_tokens: int = Field(1024, ge=1)
    memory: str = "Memory:"
    section: str = "Section:"
    instruction: str = (
        "Update the memory with what the section says about the problem. Keep what is still needed. "
        "Write the new memory only."
    )
    empty: str = "Nothing yet."


def ask(config: Config, prompt: Prompt, history: History) -> Ask:
    """The conversation of the next chunk; after the last chunk, the conversation of the action."""
    chunks = split(config, history.chat, history.now.text)
    held = history.memory or config.empty
    if history.read >= len(chunks):
        return fresh(prompt, history, prompt.first(replace(history.now, text=f"{config.memory} {held}")))
    chunk = chunks[history.read]
    task = history.now.task or history.first.task
    parts = [task, config.memory, held, config.section, chunk, config.instruction]
    asked = fresh(prompt, history, "\n".join(part for part in parts if part))
    return asked._replace(rewrites=Rewrite(history.memory, chunk), max_tokens=config.memory_tokens)


@lru_cache(maxsize=256)  # `split` is asked for the same text once per chunk
def split(config: Config, chat: Chat | None, text: str) -> tuple[str, ...]:
    """The text in chunks of whole lines; a line of more than `chunk_tokens` tokens is split into words. At least one
    chunk, which is empty for an empty text.

    The tokens of each line or word are counted by themselves and added. A chunk exceeds the limit only if it is a
    single word that is longer than the limit.
    """
    chunks: list[str] = []
    current: list[str] = []
    held = 0
    for line in text.splitlines(keepends=True):
        size = _size(chat, line)
        pieces = [(line, size)]
        if size > config.chunk_tokens:
            pieces = [(word, _size(chat, word)) for word in (f" {word}" for word in line.split())]
        for piece, size in pieces:
            if current and held + size > config.chunk_tokens:
                chunks.append("".join(current).strip())
                current, held = [], 0
            current.append(piece)
            held += size
    return (*chunks, "".join(current).strip())


def _size(chat: Chat | None, text: str) -> int:
    return len(text.split()) if chat is None else len(chat.encode_plain(text))


def rewritten(config: Config, history: History, text: str) -> None:
    """Store what the model wrote as its memory, and count the chunk as read."""
    history.memory, history.read, history.rewrites = text, history.read + 1, history.rewrites + 1


def words(config: Config) -> Sequence[str]:
    """The words that this context adds to prompts, for a new tokenizer."""
    return (config.memory, config.section, config.instruction, config.empty)
