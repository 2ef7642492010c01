"""What a context policy is: history -> prompt. A file in `algorithms/context/` offers a frozen `Config` and

def ask(config: Config, prompt: Prompt, history: History) -> Ask
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from agentrl.chat import Chat
from agentrl.prompt import Past, Prompt
from agentrl.types import Message, Observation


@dataclass
class History:
    """An episode so far, as a context policy may see it.

    Attributes:
        chat: the tokenizer's template, or None for policies that read messages.
        first: the observation of turn 0.
        now: the current observation.
        past: the turns played.
        messages: the messages of the last prompt and the answer to it.
        path: [T] int64 ids of the last prompt and the answer to it.
    """

    chat: Chat | None
    first: Observation
    now: Observation
    past: list[Past] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    path: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


class Ask(NamedTuple):
    """One turn's prompt.

    `token_ids` [T] is all the model reads; the last `added` of them are new, the ones before are the path of
    the previous turn (`added` = T for a fresh prompt). Both are empty without a tokenizer.
    """

    messages: Sequence[Message]
    token_ids: np.ndarray
    added: int


def fresh(prompt: Prompt, history: History, user: str) -> Ask:
    """A prompt of its own: the system message, if any, and one user message."""
    messages = ([Message("system", prompt.system)] if prompt.system else []) + [Message("user", user)]
    ids = history.chat.start(messages) if history.chat else np.zeros(0, np.int64)
    return Ask(messages, ids, len(ids))


def appended(history: History, text: str, most: int | None = None) -> Ask:
    """The previous prompt and answer, and a text inside the same assistant turn, of at most `most` tokens.

    An answer that ended with the end token is opened again first, as the template opens one. A policy that reads
    messages gets the text as a user message.
    """
    messages = [*history.messages, Message("user", text)]
    if history.chat is None:
        return Ask(messages, history.path, 0)
    ended = len(history.path) > 0 and history.path[-1] == history.chat.end_id
    added = history.chat.go_on(text, ended=bool(ended), most=most)
    return Ask(messages, np.concatenate([history.path, added]), len(added))


def continued(history: History, user: str) -> Ask:
    """The previous prompt and answer, and one more user message; an answer cut off is closed first."""
    message = Message("user", user)
    messages = [*history.messages, message]
    if history.chat is None:
        return Ask(messages, history.path, 0)
    added = history.chat.turn(message)
    if not len(history.path) or history.path[-1] != history.chat.end_id:
        added = np.concatenate([[history.chat.end_id], added])
    return Ask(messages, np.concatenate([history.path, added]), len(added))
