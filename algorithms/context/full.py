"""The whole chat, append-only: each turn continues the tokens of the turn before.

Formula: prompt of turn t = prompt of turn t-1 + answer of turn t-1 + observation of turn t.

Source: none; this is the usual way to prompt chat models.
"""

from collections.abc import Sequence

from pydantic import BaseModel, Field

from agentrl.chat import Chat
from agentrl.env import Prompt, continues, rewords
from agentrl.rollout import Ask, History, appended, continued, fresh
from agentrl.types import Message


class Config(BaseModel, frozen=True, extra="forbid"):
    """observation_tokens: largest number of tokens of an observation after the first turn; a longer observation loses
    its end. None, or a policy without a tokenizer: no limit."""

    observation_tokens: int | None = Field(None, ge=1)


def ask(config: Config, prompt: Prompt, history: History) -> Ask:
    """Turn 0 opens the chat; later turns add one user message, or the observation's own messages, or continue the
    assistant's message where the prompt says so."""
    said = history.now.messages if history.chat is not None or _calls_are_data(history) else ()
    if not history.past:
        return fresh(prompt, history, said or prompt.first(history.now))
    text, most = prompt.turn(history.now), config.observation_tokens
    if rewords(prompt) and history.chat is not None:
        said = ()
    if continues(prompt):
        return appended(history, text, most)
    if most is not None and history.chat is not None:
        text, said = history.chat.clip(text, most), _clipped(history.chat, said, most)
    return continued(history, said or text)


def _calls_are_data(history: History) -> bool:
    """May a policy without a tokenizer get the observation's own messages? Yes on turn 0, and after an answer with
    calls, as the results of these calls."""
    return not history.past or bool(history.messages and history.messages[-1].calls)


def _clipped(chat: Chat, messages: Sequence[Message], most: int) -> tuple[Message, ...]:
    """The messages, cut so that their texts together have at most `most` tokens."""
    kept = []
    for message in messages:
        words = chat.clip(message.content, max(0, most))
        most -= len(chat.encode_plain(words))
        kept.append(message._replace(content=words))
    return tuple(kept)
