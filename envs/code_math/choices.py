"""The letter of a choice with the text of the choice behind it: `(B) 42`, `B. 42`, `\\textbf{(B)}\\ 42`, option B."""

import re
from typing import NamedTuple

_TEXT = r"\\(?:text|textbf|textrm|mathbf|mathrm|mathsf|bold)\s?\{\s?"
_CHOICE = re.compile(
    rf"[\s$]*(?:{_TEXT}){{0,2}}(?P<word>(?i:option|choice|answer)\s+)?"
    r"(?:\((?P<round>[A-Ja-j])\)|(?P<bare>[A-J])(?P<mark>\)|[.:](?=[\s}}]|\Z)|(?=\s*\}*[\s$.]*\Z)))"
    r"(?P<rest>.*)\Z",
    re.S,
)
_ANOTHER = re.compile(r"\([A-Ja-j]\)|(?<![A-Za-z\\])[A-J][).:](?!\w)|\b(?:or|and|not)\b")
_JOINED = re.compile(r"[\s}$]*[-+*/^_=<>,;&|!'(\[]")


class Choice(NamedTuple):
    """A letter in capitals, and what stands behind it."""

    letter: str
    content: str


def choice_of(text: str) -> Choice | None:
    """The choice that a text names; None if it names none or several, or if the letter is part of an expression.

    A letter alone is no choice here, unless the word "option" or "choice" stands in front of it.
    """
    match = _CHOICE.match(text)
    if match is None or _ANOTHER.search(match["rest"]):
        return None
    content = re.sub(r"^(?:\s|\\ |\\quad|~|\}|\$)+", "", match["rest"])
    content = content.removesuffix("}") if content.count("{") < content.count("}") else content
    content = content.strip(" $.~")
    if match["bare"] and not match["mark"] and not match["word"]:
        return None
    if not content:
        return Choice((match["round"] or match["bare"]).upper(), "") if match["word"] else None
    if len(content) == 1 and content.isalpha():  # A: B is a ratio
        return None
    return None if _JOINED.match(match["rest"]) else Choice((match["round"] or match["bare"]).upper(), content)
