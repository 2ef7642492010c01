"""How an error becomes one line: without secrets, line breaks and characters that would steer a terminal."""

from agentrl.secret import scrubbed

MOST_CHARS = 900  # a word of the user may be longer


def sentence(error: object) -> str:
    """The error's words as one printable line of at most MOST_CHARS characters; what is no text stands as `\\n`."""
    words = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in scrubbed(str(error)))
    half = MOST_CHARS // 2
    return words if len(words) <= MOST_CHARS else f"{words[: half - 5]} [...] {words[len(words) - half :]}"
