"""Writes an error as one line without secrets, line breaks and control characters of a terminal."""

from agentrl.secret import scrubbed

MOST_CHARS = 900  # a longer sentence, such as one that repeats a long word of the user, loses its middle


def sentence(error: object) -> str:
    """The error's text as one printable line of at most MOST_CHARS characters, with escapes such as `\\n`."""
    words = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in scrubbed(str(error)))
    half = MOST_CHARS // 2
    return words if len(words) <= MOST_CHARS else f"{words[: half - 5]} [...] {words[len(words) - half :]}"
