"""Text to terms exactly as Lucene 8.11's English analysis does it: word breaks, possessives, lower case, stop words,
Porter stems.

The word-break rules are those of Unicode Standard Annex 29 at Unicode 9 with the emoji sequences of UTS 51; the table
`word_classes.txt` has the character classes of these versions, because newer classes change document lengths and so the
ranking.
"""

import re
from bisect import bisect_right
from functools import cache, lru_cache
from importlib.resources import files
from operator import itemgetter

from agentrl.envs.webshop.porter import stem

MAX_TOKEN = 255  # characters of a token; the rest of a longer one is the next token
_STOPPED = """
    a an and are as at be but by for if in into is it no not of on or such that the their then there these they this
    to was will with
"""
STOP_WORDS = frozenset(_STOPPED.split())

# Letters of `word_classes.txt`: A letter, a letter that is also a pictograph, H Hebrew, N digit, n ASCII digit,
# K Katakana, I ideograph or Hiragana, S/s South-East Asian base/mark, E pictograph, B pictograph that takes a skin
# tone M, R regional indicator, # keycap base, C keycap, V/v emoji/text selector, T/t tag/tag end, X combining or
# format mark, Z joiner, _ connector, : . , ' " what may stand inside a word or a number.
_MARK = "[XZCVvTts]*"
_PLAIN_MARK = "[XZCTts]*"  # without the presentation selectors, which emoji sequences treat apart


def _word() -> str:
    def marked(letters: str) -> str:
        return f"[{letters}]{_MARK}"

    letter, hebrew, digit, katakana, link = marked("AaH"), marked("H"), marked("Nn"), marked("K"), marked("_")
    in_word, in_number, quote, double = marked(":.'"), marked(",.'"), marked("'"), marked('"')
    run = (
        f"(?:{hebrew}(?:{quote}|{double}{hebrew})"
        f"|{digit}(?:(?:(?:{link})*|{in_number}){digit})*"
        f"|{letter}(?:(?:(?:{link})*|{in_word}){letter})*)+"
    )
    unit = f"(?:{katakana}(?:(?:{link})*{katakana})*|{run})"
    return f"(?:{link})*{unit}(?:(?:{link})+{unit})*(?:{link})*"


def _emoji() -> str:
    plain, toned = f"[aEB]{_PLAIN_MARK}", f"M{_PLAIN_MARK}"
    element = f"(?:B{_PLAIN_MARK}{toned}|{plain}V?|{toned})"
    joined = f"(?:(?<=Z){element}|Z+{element})"  # the marks of the element before may have taken the joiner
    sequence = f"Z*{element}(?:[Tt]*t|{joined}*)"
    keycap = f"[n#]{_PLAIN_MARK}V?C{_PLAIN_MARK}"
    return f"(?:{sequence}|{keycap}|R{_MARK}R{_MARK})"


_RULES = tuple(re.compile(rule) for rule in (_word(), _emoji(), f"(?:[Ss]{_MARK})+", f"I{_MARK}"))
_CONNECTORS = re.compile("_*")
_START = re.compile("[AaHNnKISsEBMRZ#_]")
_ASCII_RUN = "(?:[0-9](?:(?:_*|[,;.'])[0-9])*|[A-Za-z](?:(?:_*|[:.'])[A-Za-z])*)+"
_ASCII_WORD = re.compile(f"(?<!_)_*{_ASCII_RUN}(?:_+{_ASCII_RUN})*_*")


MOST_CLASSES = 1 << 16  # code points whose class is cached; a model's search may hold any of a million


class _Classes(dict[int, str]):
    """Code point to class letter for `str.translate`, filled as characters turn up; no class gives a blank."""

    def __init__(self) -> None:
        super().__init__()
        text = files("agentrl.envs.webshop").joinpath("word_classes.txt").read_text("ascii")
        self._spans: list[tuple[int, int, str]] = []
        for line in text.splitlines():
            letter, *spans = line.split(" ")
            for span in spans:
                first, _, last = span.partition("-")
                self._spans.append((int(first, 16), int(last or first, 16), letter))
        self._spans.sort()

    def __missing__(self, code: int) -> str:
        at = bisect_right(self._spans, code, key=itemgetter(0)) - 1
        inside = at >= 0 and code <= self._spans[at][1]
        letter = self._spans[at][2] if inside else " "
        if len(self) < MOST_CLASSES:
            self[code] = letter
        return letter


_classes = cache(_Classes)


def words(text: str) -> list[str]:
    """The words of a text in order, as written."""
    if text.isascii():
        found = _ASCII_WORD.findall(text)
        return found if all(len(word) <= MAX_TOKEN for word in found) else _cut(text)
    return _cut(text)


def _cut(text: str) -> list[str]:
    """The words of a text: at each place the longest match of any rule, at most MAX_TOKEN characters long."""
    classes = text.translate(_classes())
    found = []
    start = _START.search(classes)
    while start:
        at = start.start()
        matches = (rule.match(classes, at, at + MAX_TOKEN) for rule in _RULES)
        end = max((match.end() for match in matches if match), default=at)
        if end > at:
            found.append(text[at:end])
        else:  # a run of MAX_TOKEN connectors or more begins no word: go on at its last MAX_TOKEN - 1 connectors
            end = _CONNECTORS.match(classes, at).end() - MAX_TOKEN + 1  # type: ignore[union-attr]
        start = _START.search(classes, max(end, at + 1))
    return found


def _lower(letter: str) -> str:
    """Lower case of one code point by itself, as Java has it: one to one, no final sigma."""
    low = letter.lower()
    return low if len(low) == 1 else low[0]


@lru_cache(maxsize=1 << 18)
def term(word: str) -> str:
    """The index term of a word; empty for a stop word."""
    if len(word) >= 2 and word[-1] in "sS" and word[-2] in "'\u2019\uff07":
        word = word[:-2]
    word = word.lower() if word.isascii() else "".join(map(_lower, word))
    return "" if word in STOP_WORDS else stem(word)


def terms(text: str) -> list[str]:
    """The index terms of a text in order, repetitions kept."""
    return [found for found in map(term, words(text)) if found]
