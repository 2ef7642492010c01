"""The words of a text, in all scripts.

A text is read in Unicode's form NFKC and without case, so that full-width and half-width forms, ligatures, and accents
written as letters of their own make no difference. A word is a run of letters, digits and combining marks. Letters
that are written in two ways (the Turkish i without a dot; the alefs, yehs and kafs of Arabic) are one letter. Signs
that a text may leave out (the points of Arabic and Hebrew, soft hyphens, joiners) are left out.

Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese and some smaller scripts have no blanks between words, or attach
particles to them. A run of their letters is cut as Lucene's CJKAnalyzer cuts it: into all pairs of neighbours. A
document also gets the single letters, which a query of one letter needs.

C++, C#, F# and the like are words of their own (also in C++17), and so is a name that begins with a dot, such as .NET.

Limit: traditional and simplified characters are different letters.
"""

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable
from typing import Literal

WORD_RULE = 3  # number of the rule for words; an index that was made by another rule is built again
Units = Literal["pairs", "letters"]

WITHOUT_BLANKS = (  # Han, kana, Bopomofo, Hangul; Thai, Lao, Burmese, Khmer, Tai, Balinese, Javanese; without digits
    "\u2e80-\u2fd5\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3105-\u312f\u31a0-\u31bf"
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb"
    "\u0e01-\u0e2e\u0e30\u0e32\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u0eb2\u0eb3\u0ebd-\u0ec6\u0edc-\u0edf"
    "\u1000-\u102a\u103f\u1050-\u1055\u105a-\u105d\u1061\u1065\u1066\u106e-\u1070\u1075-\u1081\u108e\ua9e0-\ua9ef"
    "\uaa60-\uaa7a\u1780-\u17b3\u17d7\u17dc\u1950-\u1974\u1980-\u19ab\u1a20-\u1a54\u1b05-\u1b33\u1b45-\u1b4c"
    "\ua984-\ua9b2"
)
HIGH_HAN = "\U00020000-\U000323af"
LEFT_OUT = re.compile(  # Hebrew and Arabic points, tatweel, soft hyphen, joiners and marks of direction, variants
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4"
    "\u06e7\u06e8\u06ea-\u06ed\u00ad\u034f\u200c-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff"
    "\U000e0100-\U000e01ef]"
)


_SAME = str.maketrans(  # the dotless i; the Arabic alefs, ta marbuta and the two forms of yeh and kaf, as in Lucene
    "\u0131\u0622\u0623\u0625\u0671\u0629\u0649\u06cc\u06a9", "i\u0627\u0627\u0627\u0627\u0647\u064a\u064a\u0643"
)
_DIGIT = re.compile(r"[^\D0-9]")
_SIGNED = r"(?P<signed>WORD(?:\+\+(?=\d\d(?!\w))|(?:\+\+|\#)(?![\w+\#])))"
_WORDS = _SIGNED + r"|(?<![\w.])(?P<dotted>\.(?!\d)WORD)|(?P<word>WORD)"
_SIMPLE = _WORDS.replace("WORD", r"\w+")  # for texts without marks and without runs
_ASCII, _LETTERS = re.compile(_SIMPLE, re.ASCII), re.compile(_SIMPLE)


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """A letter of a run or a mark; a run or a word, with the groups of _WORDS and `run`; a letter of a run with its
    marks and the letters below it.

    `re` is fast with a class of characters up to U+FFFF, so the higher ones stand in classes of their own.
    """
    points = [point for point in range(0x300, 0x1E950) if unicodedata.category(chr(point)) in ("Mn", "Mc", "Me")]
    low, high = _ranges(p for p in points if p <= 0xFFFF), _ranges(p for p in points if p > 0xFFFF)
    letter, mark = f"(?:[{WITHOUT_BLANKS}]|[{HIGH_HAN}])", f"(?:[{low}]|[{high}])"
    below = f"(?:[\u17d2\u1039\u1a60\u1b44\ua9c0]{letter}{mark}*)*"  # stacked consonants
    cluster = f"{letter}{mark}*{below}"
    word = f"(?:(?!{letter})\\w{mark}*)+"
    return (
        re.compile(f"[{WITHOUT_BLANKS}{low}]"),
        re.compile(f"(?P<run>(?:{cluster})+)|{_WORDS.replace('WORD', word)}"),
        re.compile(cluster),
    )


def search_words(text: str, units: Units = "pairs", *, query: bool = False) -> list[str]:
    """The words of a document, or of a query, in their order.

    Args:
        text: the document or query.
        units: how a run of a script without blanks is cut: into pairs of neighbours, or into letters.
        query: leave out the single letters of a run of two letters or more, if it is cut into pairs.
    """
    if text.isascii():
        return [word for found in _ASCII.finditer(text.lower()) for word in _plain(found)]
    text, (special, whole, cluster) = plain(text), _patterns()
    if not special.search(text) and max(text, default="") <= "\uffff":
        return [word for found in _LETTERS.finditer(text) for word in _plain(found)]
    made: list[str] = []
    for found in whole.finditer(text):
        run = found["run"]
        if not run:
            made += _plain(found)
            continue
        letters = cluster.findall(run)
        if units == "pairs" and len(letters) > 1:
            made += [first + second for first, second in itertools.pairwise(letters)]
            letters = [] if query else letters
        made += letters
    return made


def plain(text: str) -> str:
    """The text in the form NFKC, without case and without signs that may be left out; all digits are 0 to 9."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    text = LEFT_OUT.sub("", text).replace("i\u0307", "i")  # the small form of the Turkish letter for a dotted capital I
    text = text.translate(_SAME)
    return _DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text)


def _plain(found: re.Match[str]) -> list[str]:
    """The words of a match that is no run. A long word with a sign, and a name with a dot, count without it too."""
    if word := found["word"]:
        return [word]
    if dotted := found["dotted"]:
        return [dotted, dotted[1:]]
    signed = found["signed"]
    bare = signed.rstrip("+#")
    return [signed] if len(bare) <= 2 else [signed, bare]


def _ranges(points: Iterable[int]) -> str:
    """Code points as the inside of a character class."""
    found: list[list[int]] = []
    for point in points:
        if found and found[-1][1] == point - 1:
            found[-1][1] = point
        else:
            found.append([point, point])
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in found)
