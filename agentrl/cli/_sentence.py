"""Writes an error as one line without secrets, line breaks or control characters of a terminal."""

from agentrl.secret import scrubbed

MOST_CHARS = 900  # the middle of a longer sentence is left out, such as of one that quotes a long word of the user


def sentence(error: object) -> str:
    """The error's text as one line of at most about MOST_CHARS characters; an escape such as `\\n` replaces each
    character that is not printable."""
    words = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in scrubbed(str(error)))
    half = MOST_CHARS // 2
    return words if len(words) <= MOST_CHARS else f"{words[: half - 5]} [...] {words[len(words) - half :]}"
