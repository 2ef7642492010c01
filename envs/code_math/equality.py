"""The comparison of two answers: their parts by the rules of this module, expressions by math-verify (`judge`)."""

import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Literal

from agentrl.envs.code_math import judge
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
_SIGNS = names(
    r"""
    + - / ^ _ ( ) [ ] { } | ! = < > , & :
    """
)


def compare(given: str, expected: str, units: Units) -> Verdict:
    """The verdict on two answers of at most `answers.LONGEST` characters."""
    a, b = form_of(given), form_of(expected)
    verdict = _compare(a, b, units)
    if verdict == "different" and "," in given + expected and "list" in (a.kind, b.kind) and a.kind != b.kind:
        # "100,200" is one number, or the list "100, 200"; with a list on the other side it is a list.
        x, y = (form_of(text, False) if form.kind == "leaf" else form for text, form in ((given, a), (expected, b)))
        return _compare(x, y, units) if x.kind == y.kind == "list" else verdict
    return verdict


def _compare(a: Form, b: Form, units: Units) -> Verdict:
    """`a` is the given answer, `b` the expected one."""
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
    if {a.kind, b.kind} == {"text", "leaf"}:
        x, y = (form.words if form.kind == "text" else form.head + form.words for form in (a, b))
        return (
            "equal" if len(x) == len(y) == 1 and len(x[0]) > 2 and x[0].casefold() == y[0].casefold() else "different"
        )
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


def _named(a: Form, b: Form, units: Units) -> Verdict:
    """A name may be missing on one side. Everything that a name equals must be right: x = 5 = 7 is not 5."""
    if a.kind == b.kind == "named":
        if a.name == b.name:
            return _all(_compare(x, b.parts[-1], units) for x in a.parts)
        return _judged(a, b) if _letters(b.parts[-1]) else "different"
    if a.kind == "relation" or b.kind == "relation":
        # y = 2x + 1 is 2x - y + 1 = 0. But x = 2 is not 2x = 4, which is still to be solved.
        return _judged(a, b) if b.kind == "relation" or _letters(b.parts[-1]) else "different"
    said = a.parts if a.kind == "named" else (a,)
    right = b.parts[-1] if b.kind == "named" else b
    return _all(_compare(x, right, units) for x in said)


def _letters(form: Form) -> bool:
    """Does a form hold a variable?"""
    return any(token.isalpha() and token not in ("e", "i") for token in form.tokens)


def _lists(a: Form, b: Form, units: Units) -> Verdict:
    """Bare lists and sets in any order; pairs, intervals and matrices in order. A part that occurs twice must occur
    twice in the other list."""
    loose = {a.brackets, b.brackets} <= {"", "{}"} or a.brackets == b.brackets == "union"
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
            if one_of_two(part, other):
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


def one_of_two(a: Form, b: Form) -> bool:
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
    if a.head == b.head:
        return "equal"
    letter = _letter(a), _letter(b)
    if all(letter):
        chosen = len(a.head) > 1 or len(b.head) > 1
        return "equal" if letter[0] == letter[1] or (chosen and letter[0].lower() == letter[1].lower()) else "different"
    if len(a.head) == len(b.head) == 1 and a.head[0].isalpha() and b.head[0].isalpha():
        x, y = a.head[0].casefold(), b.head[0].casefold()
        if x == y and (len(x) > 2 or x in ("no", "ab")):
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
