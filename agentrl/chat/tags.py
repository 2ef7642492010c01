"""Finds pairs of tags in texts."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Tagged(NamedTuple):
    """`<tag>content</tag>` at `text[start:end]`."""

    tag: str
    content: str
    start: int
    end: int


def tagged(text: str, tag: str) -> Iterator[Tagged]:
    """Every pair of an opening and a closing tag, from left to right, found in linear time.

    The first closing tag after an opening tag ends the pair.

    The regular expression `<tag>(.*?)</tag>` with DOTALL finds the same pairs, but for each opening tag without a
    closing tag it reads to the end of the text.
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
    """The pair that begins first among the pairs of all `tags`; None if the text has no pair."""
    found = (next(tagged(text, tag), None) for tag in tags)
    return min((pair for pair in found if pair is not None), key=lambda pair: pair.start, default=None)
