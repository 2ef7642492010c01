"""What a context policy is: history -> prompt. A file in `algorithms/context/` offers a frozen `Config` and

    def ask(config: Config, prompt: Prompt, history: History) -> Ask

`ContextPolicy` lists what else a file may offer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from agentrl.catalogue import CatalogueFile, hook
from agentrl.chat import Chat
from agentrl.env import Past, Prompt, Shown
from agentrl.graph import Filler
from agentrl.types import Message, Observation, Rewrite


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
        memory: what the model last rewrote of it; empty if it never did.
        rewrites: how often it did.
        since: turns that were over when it last did.
        read: pieces of the current observation that it has taken into its memory.
    """

    chat: Chat | None
    first: Observation
    now: Observation
    past: list[Past] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    path: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    memory: str = ""
    rewrites: int = 0
    since: int = 0
    read: int = 0


class Ask(NamedTuple):
    """One turn's prompt.

    `token_ids` [T] is all the model reads; the last `added` of them are new, the ones before are the path of
    the previous turn (`added` = T for a fresh prompt). Both are empty without a tokenizer. With `rewrites` the answer
    is not for the environment: it takes the place of what it was written from. `max_tokens`: of the answer, None for
    the limits' own.
    """

    messages: Sequence[Message]
    token_ids: np.ndarray
    added: int
    rewrites: Rewrite | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class ContextPolicy(CatalogueFile):
    """The file of a context policy.

    Attributes:
        ask: see the module.
        rewritten: takes the model's text into the history, where the model rewrites what it knows (`Ask.rewrites`).
        words: the policy's own words, for a tokenizer made anew.
        speak: puts words around the environment's, for a policy that wants more in an answer than the action.
        filler: what reads columns out of such answers.
        paper: one line for listings.
    """

    KIND: ClassVar[str] = "context"

    ask: Callable[[Any, Prompt, History], Ask] = hook(help="(config, prompt, history) -> Ask")
    rewritten: Callable[[Any, History, str], None] | None = hook(
        "", "(config, history, text): the model's rewritten memory goes into the history", None
    )
    words: Callable[[Any], Sequence[str]] | None = hook("", "(config) -> its own words, for a new tokenizer", None)
    speak: Callable[[Any, Prompt], Prompt] | None = hook("", "(config, prompt) -> the prompt with its words", None)
    filler: Callable[[Any], Filler] | None = hook("", "(config) -> Filler of columns found in answers", None)
    paper: str = hook("PAPER", "one line for listings", "")


def fresh(prompt: Prompt, history: History, user: str | Sequence[Message]) -> Ask:
    """A prompt of its own: the system message, if any, the tools on offer, and one user message or those given.

    Tools go into the chat template where the prompt says it writes them as the prompt reads them, else their
    description stands in the system message.
    """
    given = [Message("user", user)] if isinstance(user, str) else list(user)
    shown = prompt.show(history.now, history.chat) if hasattr(prompt, "show") else Shown(prompt.system)
    own = [message.content for message in given[:1] if message.role == "system"]
    system = "\n\n".join(part for part in (*own, shown.system) if part)
    messages = ([Message("system", system)] if system else []) + given[len(own) :]
    ids = history.chat.start(messages, shown.tools) if history.chat else np.zeros(0, np.int64)
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


def continued(history: History, user: str | Sequence[Message]) -> Ask:
    """The previous prompt and answer, and one more user message or those given; an answer cut off is closed first."""
    added_messages = (Message("user", user),) if isinstance(user, str) else tuple(user)
    messages = [*history.messages, *added_messages]
    if history.chat is None:
        return Ask(messages, history.path, 0)
    added = history.chat.turn(*added_messages)
    if not len(history.path) or history.path[-1] != history.chat.end_id:
        added = np.concatenate([[history.chat.end_id], added])
    return Ask(messages, np.concatenate([history.path, added]), len(added))
