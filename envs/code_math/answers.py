"""Is an answer right? The final answer is found in the text, and compared as a number if it is a number.

The final answer is the content of the last `\\boxed{}` (MATH, DAPO, ReTool). If there is none, it is the text after the
last `####` (GSM8K); else the text after the last "answer is", "answer:" or "answer ="; else the whole text.

Units. A unit after a number (or a dollar sign before it) is removed: the words of `UNIT_WORDS`, bare or inside
`\\text{}`, `%`, `^\\circ` and `\\$`. Other words inside a `\\text{}` after a number are removed too, unless they hold
a digit ("5\\text{ or 6}" is two answers). An answer without a unit equals the same answer with one, because data sets
seldom agree on units: "5" = "5 km", "5%" = "5" (and not 0.05). With `units = "agree"`, "5 km" and "5 m" differ; nothing
is converted, so "1 km" and "1000 m" differ too. With `units = "ignore"` they are equal, as in the released scorers of
MATH (Hendrycks et al., arXiv:2103.03874, `remove_right_units`), which remove units without comparing them.

Every function takes time linear in its text, or looks at no more than LONGEST characters, because a model may write any
text.
"""

import re
import string
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal, NamedTuple

Units = Literal["agree", "ignore"]

NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
MIXED = re.compile(r"([-+]?)(\d+)\s+(\d+)/(\d+)")
FRACTION = re.compile(r"\\[dt]?frac\s*(?:\{([^{}]*)\}|(\d))\s*(?:\{([^{}]*)\}|(\d))")
WORDS = re.compile(r"\\(?:text|mathrm|mathbf)\{([^{}]*)\}")
DROPPED = re.compile(r"\\(?:left|right|displaystyle|,|;|!|:)|\\text\{[a-zA-Z\s]*\}|\^\{?\\circ\}?|\\%|%|\\?\$|\\ ")
SIGN_BEHIND = re.compile(r"(?:(?P<percent>\\?%)|(?P<degree>\^\{?\\circ\}?))\s?\.?$")
_UNIT_WORDS = """
    dollar:dollar,dollars cent:cent,cents percent:percent degree:degree,degrees
    inch:inch,inches foot:foot,feet mile:mile,miles hour:hour,hours minute:minute,minutes second:second,seconds
    day:day,days mm:mm,millimeter,millimeters,millimetre,millimetres
    cm:cm,centimeter,centimeters,centimetre,centimetres m:m,meter,meters,metre,metres
    km:km,kilometer,kilometers,kilometre,kilometres kg:kg,kilogram,kilograms :unit,units
"""
UNIT_WORDS: Mapping[str, str] = {  # word -> unit; "" is equal to every unit
    word: unit
    for unit, _, words in (entry.partition(":") for entry in _UNIT_WORDS.split())
    for word in words.split(",")
}
LONGEST = 1000  # characters; if an answer is longer, the two answers are compared letter by letter
LONGEST_NUMBER = 60  # largest number of characters of a number
DEEPEST = 20  # levels of lists inside lists; a list below them is compared letter by letter
RELATIVE, ABSOLUTE = Fraction(1, 10**9), Fraction(1, 10**12)  # differences of numbers that are equal but for rounding


def boxed(text: str) -> str | None:
    """The content of the last complete `\\boxed{...}`, with balanced braces inside; None if there is none."""
    boxes = {match.end() - 1 for match in re.finditer(r"\\boxed\{", text)}
    opened: list[int] = []
    last: tuple[int, int] | None = None
    for brace in re.finditer("[{}]", text) if boxes else ():
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened and (start := opened.pop()) in boxes and (last is None or start > last[0]):
            last = start, brace.start()
    return None if last is None else text[last[0] + 1 : last[1]]


def final_answer(text: str) -> str:
    """The answer that a text ends with."""
    inside = boxed(text)
    if inside is not None:
        return inside.strip()
    marked = re.findall(r"####\s*(.+)", text)
    if marked:
        return str(marked[-1]).strip()
    said = re.findall(r"(?i)answer\s*(?:is|:|=)\s*(.+)", text)
    return (str(said[-1]) if said else text).strip().rstrip(".")


def number(text: str) -> Fraction | None:
    """The exact value of an integer, a decimal, a fraction or a mixed number; None for any other text."""
    if len(text) > LONGEST:
        return None
    text = text.strip().replace("−", "-")
    mixed = MIXED.fullmatch(text)
    try:
        if mixed:
            value = Fraction(int(mixed[2])) + Fraction(int(mixed[3]), int(mixed[4]))
            return -value if mixed[1] == "-" else value
        if text.count("/") == 1:
            above, below = text.split("/")
            top, bottom = number(above.strip("()")), number(below.strip("()"))
            return None if top is None or bottom is None else top / bottom
        if len(text) > LONGEST_NUMBER or not NUMBER.fullmatch(text):
            return None
        exponent = re.search(r"[eE]([-+]?\d+)", text)
        return None if exponent and abs(int(exponent[1])) > 400 else Fraction(text.replace(",", "").rstrip("."))
    except (ValueError, ZeroDivisionError):
        return None


class Normal(NamedTuple):
    """An answer's text without the parts that do not change its meaning, and its unit ("" if it has none)."""

    text: str
    unit: str


def normalised(text: str) -> Normal:
    """An answer without LaTeX spacing, unit, signs of money, and a name before `=`."""
    text, unit = _without_sign(text)
    text = FRACTION.sub(lambda m: f"({m[1] or m[2]})/({m[3] or m[4]})", text)
    words = list(WORDS.finditer(text))
    if words and words[-1].end() == len(text) and NUMBER.match(text) and not re.search(r"\d", words[-1][1]):
        unit = UNIT_WORDS.get(words[-1][1].strip(), unit)
        text = text[: words[-1].start()]
    text = WORDS.sub(r"\1", text)
    text = DROPPED.sub("", text).strip().rstrip(".")
    text = re.sub(r"^[a-zA-Z]\s*=\s*", "", text)
    bare = text.rstrip(string.ascii_letters)
    if bare != text and text[len(bare) :] in UNIT_WORDS and NUMBER.match(text):
        unit = UNIT_WORDS[text[len(bare) :]]
        text = bare
    return Normal(" ".join(text.split()), unit)


def _without_sign(text: str) -> Normal:
    """The text without the `$` around it, and the unit that a `$` before it or a `%` or `^\\circ` at its end names."""
    whole = text.strip()
    text = whole.strip("$").strip().replace("\\{", "{").replace("\\}", "}")
    if text.startswith("\\$") or (whole.startswith("$") and not whole.endswith("$")):
        return Normal(text, "dollar")
    behind = SIGN_BEHIND.search(text[-20:])
    return Normal(text, str(behind.lastgroup) if behind else "")


class _Form(NamedTuple):
    """An answer taken apart: its value if it is a number, or the parts of a list, and the brackets around them."""

    text: str
    unit: str
    value: Fraction | None
    parts: tuple["_Form", ...] = ()
    brackets: str = ""

    @property
    def letters(self) -> str:
        """The text without blanks and braces, lower case."""
        return self.text.translate(_SQUEEZED).lower()

    @property
    def key(self) -> tuple[object, ...]:
        """The key by which the parts of a set are sorted, so that equal parts of two sets get equal positions."""
        if self.value is not None:
            return 0, self.value
        return (2, tuple(part.key for part in self.parts)) if self.parts else (1, self.letters)


_SQUEEZED = str.maketrans("", "", " {}")


def same(given: str, expected: str, units: Units = "agree") -> bool:
    """Do two answers mean the same?

    Numbers are compared by value, lists part by part in order, sets part by part in any order (a part that occurs twice
    in one set must occur twice in the other), and other texts letter by letter. The docstring of the module says how
    units are compared.
    """
    if max(len(given), len(expected)) > LONGEST:
        return given.strip() == expected.strip()
    return _equal(_form(given), _form(expected), units)


def _form(text: str, depth: int = 0) -> _Form:
    text, unit = normalised(text)
    value = _value(text)
    if value is not None or depth == DEEPEST:
        return _Form(text, unit, value)
    brackets, parts = _parts(text)
    return _Form(text, unit, None, tuple(_form(part, depth + 1) for part in parts), brackets)


def _equal(a: _Form, b: _Form, units: Units) -> bool:
    if units == "agree" and a.unit and b.unit and a.unit != b.unit:
        return False
    if a.value is not None and b.value is not None:
        exact = "." not in a.text and "." not in b.text
        allowed = Fraction(0) if exact else max(RELATIVE * max(abs(a.value), abs(b.value)), ABSOLUTE)
        return abs(a.value - b.value) <= allowed
    if a.parts and len(a.parts) == len(b.parts):
        if a.brackets != b.brackets:
            return False
        ordered = [sorted(f.parts, key=lambda part: part.key) if f.brackets == "{}" else f.parts for f in (a, b)]
        return all(_equal(one, other, units) for one, other in zip(*ordered, strict=True))
    return bool(a.text) and bool(b.text) and a.letters == b.letters


def _value(text: str) -> Fraction | None:
    found = number(text)
    if found is None and text.startswith("(") and text.endswith(")"):
        found = number(text[1:-1])
    if found is None and text.startswith("-("):
        inner = number(text[1:])
        inner = number(text[2:-1]) if inner is None and text.endswith(")") else inner
        found = None if inner is None else -inner
    return found


def _parts(text: str) -> tuple[str, list[str]]:
    """The brackets around a list, pair, interval or set ("" for none), and its parts; no parts for anything else."""
    depths, depth = [], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        depths.append(depth)
    within = text[:1] in tuple("([{") and text[-1:] in tuple(")]}") and 0 not in depths[:-1]
    level, found, start = int(within), list[str](), int(within)
    for position, character in enumerate(text):
        if character == "," and depths[position] == level:
            found.append(text[start:position].strip())
            start = position + 1
    found.append(text[start : len(text) - within].strip())
    return (text[0] + text[-1] if within else ""), (found if len(found) > 1 else [])
