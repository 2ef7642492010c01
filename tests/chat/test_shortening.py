"""Shortened texts, worked by hand."""

import pytest

from agentrl.chat import shorten


@pytest.mark.parametrize(
    ("text", "chars", "how", "shown"),
    [
        ("abcdefgh", 8, "end", "abcdefgh"),
        ("abcdefghi", 8, "end", "abcde..."),  # 8 characters in all, 3 of them the mark
        ("abcdefghi", 5, "ends", "ab...hi"),  # 5 // 2 on either side
        ("abcdefghi", 5, "middle", "abc\n... [4 characters left out] ...\nhi"),  # 5 of 9: 3 first, 2 last
        ("abcdefghi", 1, "middle", "a\n... [8 characters left out] ...\n"),
        ("abcdefghi", 5, "cell", "ab\n[... 5 characters left out ...]\nhi"),  # 5 // 2 on either side
        ("abcdefghi", 1, "cell", "a\n[... 7 characters left out ...]\ni"),
        ("abcdefghi", 5, "stream", "abcde\n[4 more characters cut off]"),
    ],
)
def test_shorten_by_hand(text, chars, how, shown):
    assert shorten(text, chars, how) == shown
