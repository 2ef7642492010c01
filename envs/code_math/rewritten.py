"""A right answer in the forms in which models write it, and answers that are nearly right, for checks of rows and
rewards."""

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

from agentrl.env import Spelling
from agentrl.envs.code_math.answers import LONGEST, Units, compare, final_answer
from agentrl.envs.code_math.forms import Form, form_of
from agentrl.envs.code_math.spelling import TEXT
from agentrl.envs.code_math.units import Behind
from agentrl.types import Task

MOST_WORDS = 5  # words of an answer in words; a longer one is a sentence that no model repeats
SAID = ("\\boxed{{{}}}", "The answer is {}.", "**Final Answer:** ${}$")


def plain(form: Form) -> str:
    """An answer as a model would write it, made of its value and its tokens, not of its text; empty if it is prose."""
    if form.kind == "text":
        few = 0 < len(form.words) <= MOST_WORDS and not any(word.startswith(TEXT) for word in form.words)
        return " ".join(form.words) if few else ""
    if form.kind in ("named", "relation"):
        left = [" ".join(form.name)] if form.kind == "named" else []
        signs = ["="] * len(form.parts) if form.kind == "named" else list(form.signs)
        return _between([*left, *map(plain, form.parts)], [f" {sign} " for sign in signs])
    if form.brackets == "matrix":
        rows = [_between([plain(cell) for cell in row.parts], [" & "] * (len(row.parts) - 1)) for row in form.parts]
        inside = _between(rows, [r" \\ "] * (len(rows) - 1))
        return inside and rf"\begin{{pmatrix}} {inside} \end{{pmatrix}}"
    if form.kind == "list":
        inside = _between([plain(part) for part in form.parts], [", "] * (len(form.parts) - 1))
        if form.brackets == "union":
            return _between([plain(part) for part in form.parts], [" \\cup "] * (len(form.parts) - 1))
        opening, closing = (f"\\{one}" if one in "{}" else one for one in (form.brackets[:1], form.brackets[1:]))
        return inside and f"{opening if form.brackets else ''}{inside}{closing if form.brackets else ''}"
    changing = [f"\\text{{ {word}}}" for word in Behind([], form.words).changing]
    if form.value is not None:
        return _number(form.value) + "".join(changing)
    tokens = form.head or form.tokens
    prose = sum(token.startswith(TEXT) or (token.isalpha() and len(token) > 3) for token in tokens)
    return "" if prose else " ".join([*tokens, *changing])


def _between(parts: Sequence[str], signs: Sequence[str]) -> str:
    """The parts with the signs between them; empty if one of the parts is."""
    if not all(parts):
        return ""
    return parts[0] + "".join(sign + part for sign, part in zip(signs, parts[1:], strict=True))


def _number(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


def unwinnable(target: str, units: Units) -> str:
    """Why no plain right answer is paid; empty if each of them is.

    The plain right answers are `plain` in the words of SAID. They are read and compared as the answers of a model.
    """
    shown = target if len(target) <= 80 else f"{target[:80]} ..."
    if len(target) > LONGEST:
        return f"the right answer has {len(target)} characters, more than {LONGEST}: give the answer alone"
    written = plain(form_of(target))
    if not written:
        return (
            f"the right answer is read as {shown!r}, which no plain answer equals: give the answer alone, or in "
            "\\boxed{}"
        )
    lost = [said for said in SAID if compare(final_answer(said.format(written)), target, units) != "equal"]
    if lost:
        return f"the right answer is read as {shown!r}, and the answer {lost[0].format(written)!r} is not paid"
    return ""


def spellings(task: Task) -> Sequence[Spelling]:
    """The right answer of a task in other spellings, and answers that are nearly right."""
    target = str(task.params["target"])
    form = form_of(target)
    right = [*_equal(target, form)]
    wrong = [*_near(target, form)]
    found = [Spelling(name=name, text=f"\\boxed{{{text}}}", right=True) for name, text in right if text]
    found += [Spelling(name=name, text=f"\\boxed{{{text}}}", right=False) for name, text in wrong if text]
    return found


def _equal(target: str, form: Form) -> Iterator[tuple[str, str]]:
    yield "plain", plain(form)
    yield "between dollars", f"${target.strip('$')}$"
    yield "between brackets of LaTeX", f"\\({target.strip('$')}\\)"
    if "\\frac" in target:
        yield "other fractions", target.replace("\\frac", "\\dfrac")
    if form.value is not None and not Behind([], form.words).changing:
        value = form.value
        yield "a fraction", f"\\frac{{{value.numerator}}}{{{value.denominator}}}"
        yield "with a name", f"x = {_number(value)}"
        if value.denominator == 1:
            yield "groups of three digits", f"{value.numerator:,}".replace(",", "{,}")


def _near(target: str, form: Form) -> Iterator[tuple[str, str]]:
    """Each is a wrong answer to whatever question `target` answers."""
    if form.kind == "text":
        yield "not it", f"\\text{{not {' '.join(form.words)}}}"
        return
    bare = re.sub(r"(\^|_|\\sqrt)\{([a-zA-Z]|\\[a-zA-Z]+ ?)([-+][^{}]*)\}", r"\1\2\3", target)
    if bare != target:
        yield "braces dropped", bare
    flat = re.sub(r"\^(?:\{[^{}]*\}|\d)", "", target)
    if flat != target:
        yield "exponents dropped", flat
    if form.kind == "list":
        if form.brackets in ("()", "[)", "(]", "[]") and form.parts[0].tokens != form.parts[-1].tokens:
            written = _between([plain(part) for part in reversed(form.parts)], [", "] * (len(form.parts) - 1))
            yield "another order", f"{form.brackets[0]}{written}{form.brackets[1]}"
        if form.brackets in ("", "{}"):
            yield "one part", plain(form.parts[0])
        return
    if form.kind != "leaf":
        return
    value = form.value
    other = _number(value + 1) if value is not None else f"{target}+1"
    if value is not None:
        yield "one more", other
        yield "a digit more", _number(value * 10 if value else Fraction(10))
        if value:
            yield "the opposite", _number(-value)
        yield "work that is left", f"{_number(value - 1)}+1" if value.denominator == 1 else ""
    yield "two answers", f"{target} \\text{{ or }} {other}"
    yield "a list", f"{target}, {other}"
    yield "a word that changes it", f"{target} \\text{{ million}}"
    yield "not it", f"\\text{{not }} {target}"
