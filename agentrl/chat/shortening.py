"""Shortens texts that are too long to show in full."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple


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


def shorten(text: str, chars: int, how: Literal["end", "ends", "middle", "cell", "stream"] = "end") -> str:
    """The text if it has at most `chars` characters, else a part of it with a mark where characters are missing.

    Models read the marks of `middle`, `cell` and `stream` during training, so these marks must not change.

    Args:
        text: any text.
        chars: number of characters; at least 4 if `how` is `end`, 2 if it is `ends`, else 1.
        how: `end`: the first characters and "...", `chars` in total.
            `ends`: the first and the last `chars` // 2 characters, with "..." between them.
            `middle`: the first and the last characters, `chars` together, with "... [N characters left out] ..."
            between them. `cell`, for the result of a code cell: the first and the last `chars` // 2 characters (at
            least one each), with "[... N characters left out ...]" between them.
            `stream`: the first `chars` characters and a line "[N more characters cut off]".
    """
    if len(text) <= chars:
        return text
    if how == "end":
        return f"{text[: chars - 3]}..."
    if how == "ends":
        return f"{text[: chars // 2]}...{text[-(chars // 2) :]}"
    if how == "stream":
        return f"{text[:chars]}\n[{len(text) - chars} more characters cut off]"
    if how == "middle":
        head = (chars + 1) // 2
        return f"{text[:head]}\n... [{len(text) - chars} characters left out] ...\n{text[len(text) - (chars - head) :]}"
    head = max(1, chars // 2)
    return f"{text[:head]}\n[... {len(text) - 2 * head} characters left out ...]\n{text[-head:]}"
