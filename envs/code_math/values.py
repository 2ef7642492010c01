"""The exact value of a number, in the spellings of a number."""

from collections.abc import Sequence
from fractions import Fraction

LARGEST = 400  # largest exponent of ten that is worked out
DEEPEST = 8  # levels of fractions in fractions


def value_of(tokens: Sequence[str], depth: int = 0) -> Fraction | None:
    """The value of an integer, decimal, fraction, mixed number, repeating decimal, power of ten or number in scientific
    form, with signs and brackets around them; None for any other tokens.

    Args:
        tokens: as `spelling.tokens_of` gives them.
        depth: the level of the fraction in which they stand.
    """
    found = list(tokens)
    negative = False
    while found[:1] in (["-"], ["+"]):
        negative ^= found.pop(0) == "-"
    if depth > DEEPEST or not found:
        return None
    value = _unsigned(found, depth + 1)
    return None if value is None else -value if negative else value


def _unsigned(tokens: list[str], depth: int) -> Fraction | None:
    if len(tokens) == 1:
        return plain(tokens[0])
    if (tokens[0], tokens[-1]) in (("(", ")"), ("{", "}")) and closes(tokens, 0) == len(tokens) - 1:
        return value_of(tokens[1:-1], depth)
    if tokens[0] == "\\frac":
        parts = _fraction(tokens)
        return None if parts is None else quotient(*(value_of(part, depth) for part in parts))
    if "/" in tokens or "\\cdot" in tokens:
        return _two(tokens, depth)
    if tokens[:3] == ["10", "^", "{"] and tokens[-1] == "}":
        return _power(tokens[3:-1])
    return _mixed(tokens) if tokens[1] == "\\frac" else _repeating(tokens)


def plain(token: str) -> Fraction | None:
    """The value of one token."""
    if not token[0].isdigit() or not token.isascii():
        return None
    try:
        exponent = token.lower().partition("e")[2]
        return None if exponent and abs(int(exponent)) > LARGEST else Fraction(token)
    except (ValueError, ZeroDivisionError):
        return None


def quotient(above: Fraction | None, below: Fraction | None) -> Fraction | None:
    """above / below; None if one is None or below is 0."""
    return None if above is None or not below else above / below


def closes(tokens: Sequence[str], at: int) -> int:
    """The position of the bracket that closes the bracket at a position; -1 if there is none. All kinds count alike,
    because the brackets of an interval may differ."""
    level = 0
    for i in range(at, len(tokens)):
        level += (tokens[i] in OPENING) - (tokens[i] in CLOSING)
        if level == 0:
            return i
    return -1


OPENING, CLOSING = frozenset({"(", "[", "{", "\\{"}), frozenset({")", "]", "}", "\\}"})


def top_level(tokens: Sequence[str], signs: frozenset[str]) -> list[int]:
    """The positions of some signs outside all brackets."""
    level, found = 0, []
    for i, token in enumerate(tokens):
        level += (token in OPENING) - (token in CLOSING)
        if level == 0 and token in signs:
            found.append(i)
    return found


def _fraction(tokens: Sequence[str]) -> tuple[Sequence[str], Sequence[str]] | None:
    """The two arguments, if the tokens are one fraction."""
    middle = closes(tokens, 1)
    end = closes(tokens, middle + 1) if 0 < middle < len(tokens) - 1 else -1
    return (tokens[2:middle], tokens[middle + 2 : end]) if end == len(tokens) - 1 else None


def _two(tokens: list[str], depth: int) -> Fraction | None:
    """a/b, a b/c, and a times a power of ten."""
    at = top_level(tokens, frozenset({"/", "\\cdot"}))
    if len(at) != 1:
        return None
    left, right = tokens[: at[0]], tokens[at[0] + 1 :]
    if tokens[at[0]] == "\\cdot":
        if not any(one[:3] == ["10", "^", "{"] or one == ["10"] for one in (left, right)):
            return None
        a, b = value_of(left, depth), value_of(right, depth)
        return None if a is None or b is None else a * b
    if len(left) == 2 and len(right) == 1 and all(one.isdigit() for one in (*left, *right)):
        rest = quotient(Fraction(int(left[1])), Fraction(int(right[0])))
        return None if rest is None else int(left[0]) + rest
    return quotient(value_of(left, depth), value_of(right, depth))


def _power(exponent: Sequence[str]) -> Fraction | None:
    value = value_of(exponent, DEEPEST - 1)
    if value is None or value.denominator != 1 or abs(value) > LARGEST:
        return None
    return Fraction(10) ** int(value)


def _mixed(tokens: Sequence[str]) -> Fraction | None:
    parts = _fraction(tokens[1:])
    digits = [tokens[0], *(("".join(part)) for part in parts or ())]
    if parts is None or not all(one.isdigit() for one in digits):
        return None
    rest = quotient(Fraction(int(digits[1])), Fraction(int(digits[2])))
    return None if rest is None else int(digits[0]) + rest


def _repeating(tokens: Sequence[str]) -> Fraction | None:
    """0.1\\overline{6}; the dot is part of the first token if digits follow it."""
    found = list(tokens)
    if found[1:2] == ["."]:
        found[:2] = [found[0] + "."]
    if len(found) != 5 or found[1] not in ("\\overline", "\\bar", "\\dot") or "." not in found[0]:
        return None
    whole, _, after = found[0].partition(".")
    again = found[3]
    if not (whole + after + again).isdigit() or len(again) > 100:
        return None
    return Fraction(int(whole + after + again) - int(whole + after), (10 ** len(again) - 1) * 10 ** len(after))
