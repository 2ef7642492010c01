"""The comparison of two answers: their parts by the rules of this module, expressions by math-verify (`judge`)."""

import itertools
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Literal

from agentrl.envs.code_math import judge
from agentrl.envs.code_math.choices import choice_of
from agentrl.envs.code_math.forms import FLIPPED, Form, form_of, is_name
from agentrl.envs.code_math.judge import Verdict
from agentrl.envs.code_math.judge_worker import approximates
from agentrl.envs.code_math.spelling import TEXT, names
from agentrl.envs.code_math.units import Behind
from agentrl.envs.code_math.values import CLOSING, OPENING

Units = Literal["agree", "ignore"]

NOISE = Fraction(1, 10**12)  # relative difference of two numbers that are equal but for the rounding of doubles
MOST_PARTS = 12  # lists with more parts that are no numbers are compared in order
LARGEST, DEEPEST = 300, 12  # tokens, and levels of brackets, of an expression that is judged
# Commands that math-verify reads as mathematicians do. Expressions with others are compared token by token.
_READ = names(
    r"""
    \frac \sqrt \cdot \pi \infty \binom \sin \cos \tan \cot \sec \csc \arcsin \arccos \arctan \sinh \cosh \tanh
    \log \ln \exp \lfloor \rfloor \lceil \rceil \alpha \beta \gamma \delta \epsilon \theta \lambda \mu \nu \rho
    \sigma \tau \phi \psi \omega \leq \geq \neq \cup \cap \setminus \{ \} \emptyset \mathbb \begin \end \\ \in
    """
)
# What is left to do in an answer that only states the question again: "the sum of ...".
_WORK = names(
    r"""
    \int \sum \prod \lim \bmod \pmod \mod \gcd \lcm \max \min \det \deg \arg
    """
)
_FUNCTIONS = names(r"\sin \cos \tan \cot \sec \csc \arcsin \arccos \arctan \log \ln \exp")
_NAMING = names(
    r"""
    : / | ( ) _ { } + - \frac \overline \angle \triangle \sin \cos \tan \cot \sec \csc \log \ln
    """
)
_DERIVED = names("dx dy dt du dr d")  # the letters of dy/dx
_SHORT = ("no", "ab")  # words of two letters whose case does not count
_DECIMAL_COMMA = re.compile(r"[\s$]*(-?\d+),(\d{1,2}|\d{4,15}|(?<=\b0,)\d+)[\s$]*")
_SIGNS = names(
    r"""
    + - / ^ _ ( ) [ ] { } | ! = < > , & :
    """
)


def compare(given: str, expected: str, units: Units) -> Verdict:
    """The verdict on two answers of at most `answers.LONGEST` characters."""
    a, b = form_of(given), form_of(expected)
    verdict = _compare(a, b, units)
    if verdict == "different":
        verdict = _chosen(given, expected, units)
    if verdict == "different":
        x, y = (_with_point(text, other) for text, other in ((given, b), (expected, a)))
        verdict = _compare(x or a, y or b, units) if x or y else verdict
    if verdict == "different" and "," in given + expected and "list" in (a.kind, b.kind) and a.kind != b.kind:
        # "100,200" is one number, or the list "100, 200"; with a list on the other side it is a list.
        x, y = (form_of(text, False) if form.kind == "leaf" else form for text, form in ((given, a), (expected, b)))
        return _compare(x, y, units) if x.kind == y.kind == "list" else verdict
    return verdict


def _chosen(given: str, expected: str, units: Units) -> Verdict:
    """The verdict on two answers if one of them is a choice with its text: `(B) 42` is B, and it is 42."""
    a, b = choice_of(given), choice_of(expected)
    if a is None and b is None:
        return "different"
    letters = [found.letter if found else _letter(form_of(text)) for found, text in ((a, given), (b, expected))]
    if all(letters):
        both = a is not None and b is not None and a.content and b.content
        agrees = compare(a.content, b.content, units) if both and a and b else "equal"
        return agrees if letters[0].upper() == letters[1].upper() else "different"
    x, y = (found.content if found else text for found, text in ((a, given), (b, expected)))
    return compare(x, y, units) if x and y else "different"


def _with_point(text: str, other: Form) -> Form | None:
    """The form of a decimal with a comma (3,14), if the other answer is a decimal; else None."""
    match = _DECIMAL_COMMA.fullmatch(text)
    return form_of(f"{match[1]}.{match[2]}") if match and other.decimal else None


def _compare(a: Form, b: Form, units: Units) -> Verdict:
    """`a` is the given answer, `b` the expected one."""
    if "about" in (a.kind, b.kind):
        return _about(a, b, units)
    if (not a.tokens and not a.parts) or (not b.tokens and not b.parts):
        return "different"
    if a.tokens == b.tokens and a.kind == b.kind and a.brackets != "row":
        return "equal"
    if "named" in (a.kind, b.kind):
        return _named(a, b, units)
    if a.kind == b.kind == "list":
        return _lists(a, b, units)
    if a.kind == b.kind == "relation":
        return _relations(a, b, units)
    if a.kind == b.kind == "leaf":
        return _leaves(a, b, units)
    if a.kind == b.kind == "text":
        return "equal" if [w.casefold() for w in a.words] == [w.casefold() for w in b.words] else "different"
    if {a.kind, b.kind} in ({"text", "leaf"}, {"text", "list"}):
        return "equal" if _same_prose(a, b) else "different"
    if "relation" in (a.kind, b.kind) and (found := _stated(a, b, units)) != "different":
        return found
    if _is_solved(a) and b.kind == "list" and _is_region(b):
        return _judged(b, a)  # the order that math-verify takes
    if a.kind in ("list", "leaf") and b.kind in ("list", "leaf", "relation") and _is_region(a) and _is_region(b):
        return _judged(a, b)
    return "different"


def _all(verdicts: Iterable[Verdict]) -> Verdict:
    """Equal if all are, different if one is; no verdict is asked for behind a different one."""
    found: Verdict = "equal"
    for verdict in verdicts:
        if verdict == "different":
            return "different"
        found = verdict if verdict == "unjudged" else found
    return found


def _same_prose(a: Form, b: Form) -> bool:
    """Are these the same words and numbers, whether or not they stand in text commands?"""
    x, y = (" ".join(token.removeprefix(TEXT) for token in form.tokens).casefold() for form in (a, b))
    if not all(one.isalnum() or one in " .,:" for one in x + y):
        return False
    words = [re.findall(r"\w+", text) for text in (x, y)]
    return words[0] == words[1] and any(word.isalpha() and (len(word) > 2 or word in _SHORT) for word in words[0])


def _about(a: Form, b: Form, units: Units) -> Verdict:
    """`\\frac13 \\approx 0.33` is 1/3. It is 0.33 as well if that is the expected answer, and what 1/3 rounds to."""
    exact = a.parts[0] if a.kind == "about" else a
    right = b.parts if b.kind == "about" else (b,)
    verdicts = [_compare(exact, one, units) for one in right]
    if a.kind == "about" and b.kind != "about" and _rounds_to(exact, a.parts[1]):
        verdicts.append(_compare(a.parts[1], b, units))
    return next((one for one in ("equal", "unjudged") if one in verdicts), "different")  # type: ignore[return-value]


def _rounds_to(exact: Form, decimal: Form) -> bool:
    if exact.value is None or decimal.value is None or not decimal.decimal:
        return False
    return abs(exact.value - decimal.value) <= Fraction(1, 2 * 10 ** len(decimal.decimal.partition(".")[2]))


def _stated(a: Form, b: Form, units: Units) -> Verdict:
    """An equation that states a value: `m+n = 25`, `12*7 = 84` and `|AB| = 5` are 25, 84 and 5."""
    said, right = (a, b) if a.kind == "relation" else (b, a)
    if right.kind not in ("leaf", "list") or set(said.signs) != {"="}:
        return "different"
    *sides, last = said.parts
    if not all(_is_quantity(side, expected=said is b) or (said is a and _worked(side, last)) for side in sides):
        return "different"
    return _compare(last, b, units) if said is a else _compare(a, last, units)


def _worked(side: Form, last: Form) -> bool:
    """Is a side of a chain a number that equals the last side?"""
    return not _letters(side) and not _letters(last) and (side.tokens == last.tokens or _judged(side, last) == "equal")


def _is_quantity(form: Form, expected: bool) -> bool:
    """Does a side name a quantity: m+n, |AB|, a:b, dy/dx, \\tan A? In an expected answer, letters that may be
    unknowns name none, because the answer to "x+y = 10" (a line) is not 10."""
    tokens = [
        token for i, token in enumerate(form.tokens) if not (token.isdigit() and form.tokens[i - 2 : i - 1] == ("_",))
    ]
    named = [token for token in tokens if is_name([token])]
    if not named or any(token not in _NAMING and token not in named for token in tokens):
        return False
    points = all(token[0] == "\\" or not token.islower() or token in _DERIVED for token in named)
    return not expected or ":" in tokens or (points and not {"+", "-"} & set(tokens))


def _is_solved(form: Form) -> bool:
    """Is this an inequality with nothing but a name on one of its sides, and numbers on the others?"""
    if form.kind != "relation" or "=" in form.signs:
        return False
    others = [part for part in form.parts if not is_name(part.tokens)]
    return len(others) == len(form.parts) - 1 and not any(map(_letters, others))


def _named(a: Form, b: Form, units: Units) -> Verdict:
    """A name may be missing on one side. Everything that a name equals must be right: x = 5 = 7 is not 5."""
    if a.kind == b.kind == "named":
        if a.name == b.name:
            return _chained(a, b.parts[-1], units)
        if ("y",) in (a.name, b.name) and {a.name[1:], b.name[1:]} == {(), ("(", "x", ")")}:
            return _chained(a, b.parts[-1], units)  # f(x) = 2x and y = 2x
        return _judged(a, b) if _letters(b.parts[-1]) else "different"
    if _is_solved(a) and len(b.parts) == 1 and _is_region(b.parts[0]):
        return _compare(a, b.parts[0], units) if b.name in {part.tokens for part in a.parts} else "different"
    if a.kind == "relation" or b.kind == "relation":
        # y = 2x + 1 is 2x - y + 1 = 0. But x = 2 is not 2x = 4, which is still to be solved.
        return _judged(a, b) if b.kind == "relation" or _letters(b.parts[-1]) else "different"
    right = b.parts[-1] if b.kind == "named" else b
    return _chained(a, right, units) if a.kind == "named" else _compare(a, right, units)


def _chained(a: Form, right: Form, units: Units) -> Verdict:
    """The verdict on x = p = q: q must be right, and p too, but there may be work left in it."""
    *others, last = a.parts
    if len(others) > 0 and all(_worked(one, last) for one in others):
        return _compare(last, right, units)
    return _all(_compare(one, right, units) for one in a.parts)


def _letters(form: Form) -> bool:
    """Does a form hold a variable?"""
    return any(token.isalpha() and token not in ("e", "i") for token in form.tokens)


def _lists(a: Form, b: Form, units: Units) -> Verdict:
    """Bare lists and sets in any order; pairs, intervals and matrices in order. A part that occurs twice must occur
    twice in the other list."""
    loose = {a.brackets, b.brackets} <= {"", "{}"} or a.brackets == b.brackets == "union"
    if {a.brackets, b.brackets} == {"", "union"}:  # x < 1 or x > 2
        loose = all(part.kind == "relation" for form in (a, b) if not form.brackets for part in form.parts)
    if len(a.parts) != len(b.parts) or not (loose or a.brackets == b.brackets):
        return _judged(a, b) if _is_region(a) and _is_region(b) and "union" in (a.brackets, b.brackets) else "different"
    if not loose:
        return _all(_compare(x, y, units) for x, y in zip(a.parts, b.parts, strict=True))
    if all(part.value is not None for part in (*a.parts, *b.parts)):
        x, y = (sorted(form.parts, key=lambda part: (part.value, part.words)) for form in (a, b))
        return _all(_compare(one, other, units) for one, other in zip(x, y, strict=True))
    if len(a.parts) > MOST_PARTS:
        return _all(_compare(x, y, units) for x, y in zip(a.parts, b.parts, strict=True))
    return _matched(a, b, units)


def _matched(a: Form, b: Form, units: Units) -> Verdict:
    """Find for each part of `a` an equal part of `b` that is not taken."""
    left, unsure = list(b.parts), False
    for part in sorted(a.parts, key=lambda one: one.tokens not in {other.tokens for other in b.parts}):
        verdicts: list[Verdict] = []
        for at, other in enumerate(left):
            if _one_of_two(part, other):
                verdicts.append("different")
                continue
            verdicts.append(_compare(part, other, units))
            if verdicts[-1] == "equal":
                del left[at]
                break
        else:
            if "unjudged" not in verdicts:
                return "different"
            unsure = True
    return "unjudged" if unsure else "equal"


def _one_of_two(a: Form, b: Form) -> bool:
    """Do the parts of two lists name two different things, x = 1 and y = 1?"""
    return a.kind == b.kind == "named" and a.name != b.name


def _relations(a: Form, b: Form, units: Units) -> Verdict:
    """Side by side, if the signs are the same; else by math-verify, unless a name stands alone on a side of the
    expected relation: x < 5 is not 2x < 10, which is still to be solved."""
    for x in (a, _flipped(a)):
        if x.signs == b.signs:
            verdict = _all(_compare(one, other, units) for one, other in zip(x.parts, b.parts, strict=True))
            if verdict != "different":
                return verdict
    solved = any(is_name(side.tokens) for side in b.parts) and set(b.signs) != {"="}
    return "different" if solved else _judged(a, b)


def _flipped(form: Form) -> Form:
    if len(form.signs) != 1 or form.signs[0] not in FLIPPED:
        return form
    return form._replace(signs=(FLIPPED[form.signs[0]],), parts=form.parts[::-1])


def _is_region(form: Form) -> bool:
    """Is this a set of numbers: an interval, a union, a relation, \\mathbb{R}?"""
    if form.kind == "relation":
        return "=" not in form.signs
    if form.kind == "list":
        return form.brackets in ("()", "[)", "(]", "[]", "union") and (len(form.parts) == 2 or form.brackets == "union")
    return bool({"\\mathbb", "\\setminus", "\\cap"} & set(form.tokens))


def _leaves(a: Form, b: Form, units: Units) -> Verdict:
    if not _words_agree(a, b, units):
        return "different"
    if a.value is not None and b.value is not None:
        return "equal" if _numbers(a, b) else "different"
    if a.head == b.head or _same_prose(a, b):
        return "equal"
    letter = _letter(a), _letter(b)
    if all(letter):
        chosen = len(a.head) > 1 or len(b.head) > 1
        return "equal" if letter[0] == letter[1] or (chosen and letter[0].lower() == letter[1].lower()) else "different"
    if len(a.head) == len(b.head) == 1 and a.head[0].isalpha() and b.head[0].isalpha():
        x, y = a.head[0].casefold(), b.head[0].casefold()
        if x == y and (len(x) > 2 or x in _SHORT):
            return "equal"
    if b.value is not None and _left_to_do(a.head):
        return "different"
    return _judged(a, b)


def _words_agree(a: Form, b: Form, units: Units) -> bool:
    x, y = Behind([], a.words), Behind([], b.words)
    if x.changing != y.changing:
        return False
    return units == "ignore" or not a.words or not b.words or a.words == b.words


def _numbers(a: Form, b: Form) -> bool:
    """Are two values equal? A decimal may differ by the rounding of doubles from another number, and it may be a
    fraction that was rounded or cut after 6 places or more."""
    assert a.value is not None and b.value is not None
    if a.value == b.value:
        return True
    if not a.decimal and not b.decimal:
        return False
    if abs(a.value - b.value) <= NOISE * max(abs(a.value), abs(b.value)):
        return True
    for decimal, exact in ((a, b), (b, a)):
        if decimal.decimal and not exact.decimal and not _terminates(exact.value):
            return approximates(decimal.decimal, decimal.value, exact.value)  # type: ignore[arg-type]
    return False


def _terminates(value: Fraction | None) -> bool:
    below = value.denominator if value is not None else 1
    for prime in (2, 5):
        while below % prime == 0:
            below //= prime
    return below == 1


def _letter(form: Form) -> str:
    """The letter of a choice, such as B or (B); else empty."""
    head = [token for token in form.head if token not in ("(", ")", ".")]
    found = head[0].removeprefix(TEXT) if len(head) == 1 else ""
    return found if len(found) == 1 and found.isalpha() else ""


def _left_to_do(head: Sequence[str]) -> bool:
    """Does an answer to which a number is expected leave work: a sum or product, an integral, a limit?"""
    if {"+", "\\cdot", *_WORK} & set(head):
        return True
    for before, token in itertools.pairwise(head):
        if token == "-" and before not in ("{", "(", "["):
            return True
        if before == ")" and (token == "(" or token[0].isdigit()):
            return True
        if before[0].isdigit() and token in ("(", "\\sqrt", "\\frac"):
            return True
        if before == "}" and token in ("(", "\\sqrt", "\\frac") and not _FUNCTIONS & set(head):
            return True
    return False


def _judged(a: Form, b: Form) -> Verdict:
    """math-verify's verdict; "different" if it does not read one of the two."""
    given, expected = _latex(a), _latex(b)
    if not given or not expected:
        return "different"
    if max(map(_size, (a, b))) > LARGEST:
        return "unjudged"
    return judge.compare(given, expected)


def _size(form: Form) -> int:
    """The number of tokens; more than LARGEST if brackets have more than DEEPEST levels."""
    level = deepest = 0
    for token in form.tokens:
        level += (token in OPENING) - (token in CLOSING)
        deepest = max(deepest, level)
    return len(form.tokens) if deepest <= DEEPEST else LARGEST + 1


def _latex(form: Form) -> str:
    """The answer for math-verify; empty if math-verify would misread it."""
    if form.kind == "leaf" and form.value is not None and not form.decimal:
        value = form.value
        whole = f"{abs(value.numerator)}"
        text = whole if value.denominator == 1 else f"\\frac{{{whole}}}{{{value.denominator}}}"
        return f"-{text}" if value < 0 else text
    tokens = form.head if form.kind == "leaf" else form.tokens
    levels = list(itertools.accumulate((token in OPENING) - (token in CLOSING) for token in tokens))
    if any(not _readable(token) for token in tokens) or min(levels) < 0 or levels[-1] != 0:
        return ""
    if any(three == ("\\frac", "{", "d") for three in zip(tokens, tokens[1:], tokens[2:], strict=False)):
        return ""  # a derivative, which math-verify works out
    written: list[str] = []
    for i, token in enumerate(tokens):
        before = tokens[i - 1] if i else ""
        if before[-1:].isdigit() and token[0].isdigit():
            return ""  # two numbers side by side: math-verify adds them
        if token == "_" and (before[-1:].isdigit() or before == ")"):
            return ""  # a numeral in another base: math-verify drops the base
        if before[-1:].isdigit() and token == "(":
            written.append("\\cdot")  # math-verify takes 2(3) for a mixed number
        written.append(" ".join(token) if token.isalpha() and before not in ("\\begin", "\\end") else token)
    return " ".join(written).replace("\\mathbb { R }", "\\mathbb{R}")


def _readable(token: str) -> bool:
    if token.startswith("\\"):
        return token in _READ
    return token.isascii() and (token in _SIGNS or token.isalpha() or (token[0].isdigit() and "e" not in token.lower()))
