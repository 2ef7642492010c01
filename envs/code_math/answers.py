"""Is an answer right? The final answer is found in the text, and compared as a number where it is one.

Conventions: the last `\\boxed{}` (MATH, DAPO, ReTool), `#### 42` (GSM8K), "the answer is 42", else the whole text.
"""

import math
import re
from fractions import Fraction

NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
MIXED = re.compile(r"([-+]?)(\d+)\s+(\d+)/(\d+)")
FRACTION = re.compile(r"\\[dt]?frac\s*(?:\{([^{}]*)\}|(\d))\s*(?:\{([^{}]*)\}|(\d))")
DROPPED = re.compile(
    r"\\(?:left|right|displaystyle|,|;|!|:)|\\text\{\s*(?:[a-zA-Z]+\s*)*\}|\^\{?\\circ\}?|\\%|%|\\?\$|\\ "
)
UNITS = re.compile(
    r"\s*(?:dollars?|cents?|units?|degrees?|inch(?:es)?|feet|miles?|hours?|minutes?|seconds?|days?|[ck]?m|km|kg)\.?$"
)
LONGEST = 1000  # characters beyond which answers are compared letter by letter
RELATIVE = 1e-9  # difference of two numbers that are equal but for rounding


def boxed(text: str) -> str | None:
    """What stands in the last complete `\\boxed{...}`, braces inside it balanced; None if there is none."""
    at = text.rfind("\\boxed{")
    while at >= 0:
        depth, start = 0, at + len("\\boxed")
        for position in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            if depth == 0:
                return text[start + 1 : position]
        at = text.rfind("\\boxed{", 0, at)
    return None


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
    """The exact value of a number: integer, decimal, fraction, mixed number, percent kept as it stands; or None."""
    text = text.strip().replace("−", "-")
    mixed = MIXED.fullmatch(text)
    try:
        if mixed:
            value = Fraction(int(mixed[2])) + Fraction(int(mixed[3]), int(mixed[4]))
            return -value if mixed[1] == "-" else value
        if "/" in text:
            above, below = text.split("/", 1)
            top, bottom = number(above.strip("()")), number(below.strip("()"))
            return None if top is None or bottom is None else top / bottom
        if not NUMBER.fullmatch(text) or len(text) > 60:
            return None
        exponent = re.search(r"[eE]([-+]?\d+)", text)
        return None if exponent and abs(int(exponent[1])) > 400 else Fraction(text.replace(",", "").rstrip("."))
    except (ValueError, ZeroDivisionError):
        return None


def normalised(text: str) -> str:
    """An answer without what does not change its meaning: LaTeX spacing, units, signs of money, a name before `=`."""
    text = text.strip().strip("$").strip().replace("\\{", "{").replace("\\}", "}")
    text = FRACTION.sub(lambda m: f"({m[1] or m[2]})/({m[3] or m[4]})", text)
    text = re.sub(r"\\(?:text|mathrm|mathbf)\{([^{}]*)\}$", r"", text) if NUMBER.match(text) else text
    text = re.sub(r"\\(?:text|mathrm|mathbf)\{([^{}]*)\}", r"\1", text)
    text = DROPPED.sub("", text).strip().rstrip(".")
    text = re.sub(r"^[a-zA-Z]\s*=\s*", "", text)
    if NUMBER.match(text):
        text = UNITS.sub("", text)
    return re.sub(r"\s+", " ", text).strip()


def same(given: str, expected: str) -> bool:
    """Do two answers mean the same? Numbers by value, lists by their parts in order, sets in any, else by letter."""
    if max(len(given), len(expected)) > LONGEST:
        return given.strip() == expected.strip()
    a, b = normalised(given), normalised(expected)
    if a == b:
        return bool(a)
    x, y = _value(a), _value(b)
    if x is not None and y is not None:
        exact = "." not in a and "." not in b
        return x == y if exact else math.isclose(x, y, rel_tol=RELATIVE, abs_tol=1e-12)
    parts, others = _parts(a), _parts(b)
    if parts is not None and others is not None and len(parts) == len(others) > 1:
        if a[0] != b[0] and (a[0] in "([{" or b[0] in "([{"):
            return False
        if b[0] == "{":
            return all(any(same(one, other) for other in others) for one in parts)
        return all(same(one, other) for one, other in zip(parts, others, strict=True))
    squeeze = str.maketrans("", "", " {}")
    return a.translate(squeeze).lower() == b.translate(squeeze).lower()


def _value(text: str) -> Fraction | None:
    found = number(text)
    if found is None and text.startswith("(") and text.endswith(")"):
        found = number(text[1:-1])
    if found is None and text.startswith("-("):
        inner = _value(text[1:])
        found = -inner if inner is not None else None
    return found


def _parts(text: str) -> list[str] | None:
    """The parts of a list, pair, interval or set; None for anything else."""
    inside = text[1:-1] if text[:1] in ("(", "[", "{") and text[-1:] in (")", "]", "}") else text
    found, depth, start = [], 0, 0
    for position, character in enumerate(inside):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            found.append(inside[start:position].strip())
            start = position + 1
    found.append(inside[start:].strip())
    return found if len(found) > 1 else None
