"""Texts that are too long to be shown whole, and pairs of tags in texts."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple


class Tagged(NamedTuple):
    """`<tag>content</tag>` at `text[start:end]`."""

    tag: str
    content: str
    start: int
    end: int


def tagged(text: str, tag: str) -> Iterator[Tagged]:
    """Every pair of a tag from left to right, each closed by the first closing tag after it; in linear time.

    The regular expression `<tag>(.*?)</tag>` finds the same pairs, but reads to the text's end at each opening tag that
    nothing closes.
    """
    opening, closing, at = f"<{tag}>", f"</{tag}>", 0
    while (start := text.find(opening, at)) >= 0:
        inner = start + len(opening)
        closed = text.find(closing, inner)
        if closed < 0:
            return
        at = closed + len(closing)
        yield Tagged(tag, text[inner:closed], start, at)


def first_tagged(text: str, tags: Sequence[str]) -> Tagged | None:
    """The pair of any of the tags that begins first; None if there is none."""
    found = (next(tagged(text, tag), None) for tag in tags)
    return min((pair for pair in found if pair is not None), key=lambda pair: pair.start, default=None)


def shorten(text: str, chars: int, how: Literal["end", "middle", "cell", "stream"] = "end") -> str:
    """The text if it has at most `chars` characters, else a part of it with a mark where characters are missing.

    Models read `middle`, `cell` and `stream` during training: their words must not change.

    Args:
        text: any text.
        chars: at least 4 for `end`, at least 1 for the others.
        how: `end`: the first characters and "...", `chars` in all.
            `middle`: `chars` first and last characters with "... [N characters left out] ..." on a line in between.
            `cell`: the same for the result of a code cell, with "[... N characters left out ...]" and ends of equal
            length.
            `stream`: the first `chars` characters and a line "[N more characters cut off]".
    """
    if len(text) <= chars:
        return text
    if how == "end":
        return f"{text[: chars - 3]}..."
    if how == "stream":
        return f"{text[:chars]}\n[{len(text) - chars} more characters cut off]"
    if how == "middle":
        head = (chars + 1) // 2
        return f"{text[:head]}\n... [{len(text) - chars} characters left out] ...\n{text[len(text) - (chars - head) :]}"
    head = max(1, chars // 2)
    return f"{text[:head]}\n[... {len(text) - 2 * head} characters left out ...]\n{text[-head:]}"
