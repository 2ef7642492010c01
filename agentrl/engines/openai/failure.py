"""What an endpoint's failure means: its kind, the words for the user, and the time to wait before the next try."""

import json
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

from agentrl.engines.openai.refusals import PASSING, Kind, kind_of, unread, wait_s
from agentrl.engines.openai.wire import ServerSays
from agentrl.engines.openai.words import SHOWN, ServerWords, one_line, words_of

# Kinds of failures without a refusal. `lost`: no answer, or half an answer. `odd`: the answer is no completion.
Lost = Literal["lost", "odd"]
NO_WORDS = ServerWords("")
PAGE_CHARS = 80  # number of characters that an error quotes from an answer that is no JSON


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A request that got no answer.

    Attributes:
        kind: see `agentrl.engines.openai.refusals.Kind` and `Lost`.
        why: one line for the user, which may hold secrets.
        status: status of the answer; 0 without an answer.
        words: the server's words.
        wait_s: seconds that the server asks to wait; None if it names no time.
    """

    kind: Kind | Lost
    why: str
    status: int = 0
    words: ServerWords = NO_WORDS
    wait_s: float | None = None

    @property
    def passes(self) -> bool:
        """May the same request succeed later?"""
        return self.kind in PASSING or self.kind in ("lost", "odd")

    @property
    def unread(self) -> str:
        """The text of the model that the server could not read."""
        return unread(self.words)


def failure_of(error: Exception, openai: ModuleType) -> Failure:
    """The failure that an exception reports.

    Args:
        error: an exception of the library, of `agentrl.engines.openai.wire.read_completion`, or TimeoutError.
        openai: the library.
    """
    if isinstance(error, ServerSays):
        kind = kind_of(error.words, 200)
        return Failure(kind=kind, why=str(error), status=200, words=error.words, wait_s=wait_s({}, error.words))
    if isinstance(error, openai.APIStatusError):
        status = int(error.status_code)
        words = words_of(error.response.text if error.response.is_stream_consumed else error.body or "")
        return Failure(
            kind=kind_of(words, status),
            why=words.shown(status),
            status=status,
            words=words,
            wait_s=wait_s(error.response.headers, words),
        )
    cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else None
    if isinstance(error, json.JSONDecodeError) and error.doc.strip():
        begins = words_of(error.doc).shown(0)[:PAGE_CHARS]
        return Failure(kind="odd", why=f"{one_line_of(error)}: the answer is no JSON, it begins with {begins!r}")
    kind_without: Lost = "lost" if isinstance(error, openai.APIConnectionError | TimeoutError) else "odd"
    return Failure(kind=kind_without, why=one_line_of(error) + (f" {one_line_of(cause)}" if cause else ""))


def one_line_of(error: BaseException) -> str:
    """The beginning of an exception's message in one line; the name of its class if it has no message."""
    return one_line(str(error)[:10_000])[:SHOWN] or type(error).__name__
