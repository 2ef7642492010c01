"""An answer taken apart: a number or expression, a list of them, a matrix, a relation, a name with what it equals."""

import functools
import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

from agentrl.envs.code_math.spelling import TEXT, UnreadableError, names, tokens_of
from agentrl.envs.code_math.units import NUMERALS, multiplied, parted
from agentrl.envs.code_math.values import CLOSING, OPENING, closes, plain, top_level, value_of

DEEPEST = 12  # levels of lists inside lists; what lies below them is compared token by token
RELATIONS = frozenset({"=", "<", ">", "\\leq", "\\geq", "\\neq", "\\approx", "\\in"})
FLIPPED = {"<": ">", ">": "<", "\\leq": "\\geq", "\\geq": "\\leq", "=": "=", "\\neq": "\\neq"}
_JOINING = frozenset({"and", "or", "and also", "or else", "和", "或", "及", "以及"})
_MATRICES = frozenset({"matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "array"})
_GREEK = names(
    r"""
    \alpha \beta \gamma \delta \epsilon \zeta \eta \theta \iota \kappa \lambda \mu \nu \xi \rho \sigma \tau
    \upsilon \phi \chi \psi \omega \Gamma \Delta \Theta \Lambda \Xi \Sigma \Phi \Psi \Omega \ell
    """
)

Kind = Literal["leaf", "text", "list", "named", "relation", "about"]


class Form(NamedTuple):
    """See the module.

    Attributes:
        kind: which of the other attributes count.
        tokens: all tokens, without blanks; answers with equal tokens are equal.
        head: of a leaf: the tokens without the words around them.
        value: of a leaf: the exact value, if it is a number.
        decimal: of a leaf whose value is one decimal: its text.
        words: of a leaf or a text: the words, in one spelling.
        parts: of a list its parts, of a name what it equals, of a relation its sides, of
            "about" the exact value and its approximation.
        brackets: of a list: "" or "{}" (in any order), "()", "[)" and so on, "union", "matrix", "row".
        signs: of a relation: the signs between its sides, with the smaller side in front.
        name: the tokens of the name.
    """

    kind: Kind
    tokens: tuple[str, ...]
    head: tuple[str, ...] = ()
    value: Fraction | None = None
    decimal: str = ""
    words: tuple[str, ...] = ()
    parts: tuple["Form", ...] = ()
    brackets: str = ""
    signs: tuple[str, ...] = ()
    name: tuple[str, ...] = ()


@functools.lru_cache(maxsize=4096)
def form_of(text: str, commas: bool = True) -> Form:
    """The form of an answer. A text that has no tokens is a leaf of one token, which equals itself only.

    Args:
        text: the answer.
        commas: whether a comma before three digits may separate thousands.
    """
    try:
        return _read(_without_domain(tokens_of(text, commas=commas)), 0)
    except UnreadableError:
        whole = f"{TEXT}{' '.join(text.split())}"
        return Form("text", (whole,), words=(whole,))


def _without_domain(tokens: list[str]) -> list[str]:
    """The tokens without the words behind them that a letter is any integer: 2k\\pi (k \\in \\mathbb{Z})."""
    end = len(tokens) - (tokens[-1:] == [")"])
    whole = next((n for n in (4, 1) if "".join(tokens[end - n : end]).strip() in ("\\mathbb{Z}", "Z")), 0)
    at = end - whole - 2
    if not whole or at < 2 or tokens[at + 1] != "\\in" or tokens[at].strip() not in map(str.strip, tokens[:at]):
        return tokens
    front = tokens[: at - (end < len(tokens) and tokens[at - 1] == "(")]
    opened = end < len(tokens) and len(front) == at
    return tokens if opened or not front else front


def _read(tokens: Sequence[str], depth: int) -> Form:
    tokens = _trimmed(tokens)
    if tokens == ["\\{", "\\}"]:
        tokens = ["\\emptyset"]
    if depth > DEEPEST or not tokens:
        return _leaf(tokens)
    parts = _split(tokens)
    if len(parts) > 1:
        return _listed(tokens, "", parts, depth)
    found = _related(tokens, depth) or _bracketed(tokens, depth) or _united(tokens, depth)
    if found is not None:
        return found
    if tokens.count("\\pm") == 1:
        at = tokens.index("\\pm")
        signed = at > 0 and tokens[at - 1] not in OPENING
        return _listed(
            tokens, "", [[*tokens[:at], *["+"] * signed, *tokens[at + 1 :]], [*tokens[:at], "-", *tokens[at + 1 :]]],
            depth,
        )  # fmt: skip
    return _leaf(tokens)


def _trimmed(tokens: Sequence[str]) -> list[str]:
    """The tokens without punctuation around them, and without braces that hold no list."""
    found = list(tokens)
    while True:
        while found and found[-1] in (".", ",", ";", ":", "\\\\", '"', "`"):
            found.pop()
        while found and found[0] in (":", ",", ";", '"', "`"):
            found.pop(0)
        if found[:1] == ["{"] and closes(found, 0) == len(found) - 1 and len(_split(found[1:-1])) < 2:
            found = found[1:-1]
        else:
            return found


def _joins(token: str) -> bool:
    return token in (",", ";") or token.strip(" ,").removeprefix(TEXT).strip(" ,").lower() in _JOINING


def _split(tokens: Sequence[str]) -> list[list[str]]:
    """The parts between commas, semicolons and the words and, or."""
    joining = frozenset(token for token in tokens if _joins(token))
    if not joining:
        return [list(tokens)]
    at = [-1, *top_level(tokens, joining), len(tokens)]
    return [part for i, j in itertools.pairwise(at) if (part := list(tokens[i + 1 : j]))]


def _listed(tokens: Sequence[str], brackets: str, parts: Sequence[Sequence[str]], depth: int) -> Form:
    read = [_read(part, depth + 1) for part in parts]
    if not brackets:  # x = 1 \pm 2, or 3: three parts
        read = [inner for part in read for inner in (part.parts if _is_bare(part) else (part,))]
    return Form("list", _bare(tokens), parts=tuple(read), brackets=brackets)


def _is_bare(form: Form) -> bool:
    return form.kind == "list" and not form.brackets


def _bare(tokens: Sequence[str]) -> tuple[str, ...]:
    return tuple(token.strip() for token in tokens)


def _related(tokens: list[str], depth: int) -> Form | None:
    """A name with what it equals, or a relation."""
    at = top_level(tokens, RELATIONS)
    if not at:
        return None
    ends = [-1, *at, len(tokens)]
    sides = [tokens[i + 1 : j] for i, j in itertools.pairwise(ends)]
    signs = [tokens[i] for i in at]
    if signs[-1] == "\\approx" and at[-1] > 0 and sides[-1] and not (len(at) == 1 and is_name(sides[0])):
        exact, decimal = _read(tokens[: at[-1]], depth + 1), _read(sides[-1], depth + 1)
        return Form("about", _bare(tokens), parts=(exact, decimal))
    if not sides[0] and set(signs) <= {"=", "\\approx"}:
        return _read(tokens[1:], depth + 1)
    if any(not side for side in sides):
        return None
    if set(signs) <= {"=", "\\approx", "\\in"} and is_name(sides[0]):
        return Form(
            "named", _bare(tokens), name=_bare(sides[0]), parts=tuple(_read(side, depth + 1) for side in sides[1:])
        )
    if all(sign in (">", "\\geq") for sign in signs):
        sides, signs = sides[::-1], [FLIPPED[sign] for sign in signs[::-1]]
    return Form("relation", _bare(tokens), parts=tuple(_read(side, depth + 1) for side in sides), signs=tuple(signs))


def is_name(tokens: Sequence[str]) -> bool:
    """Do the tokens name something: x, x_1, \\theta, y', AB, f(x), \\angle ABC, or words?"""
    found = [token.strip() for token in tokens]
    if found[:1] == ["\\angle"] or found[:1] == ["\\triangle"]:
        found = found[1:]
    if not found:
        return False
    if found[0] == "(" and found[-1] == ")" and closes(found, 0) == len(found) - 1:
        parts = _split(found[1:-1])
        return len(parts) > 1 and all(map(is_name, parts))
    first = found[0]
    if not (first.startswith(TEXT) or first in _GREEK or (first.isalpha() and first != "i" and first != "e")):
        return False
    rest = found[1:]
    while rest and (rest[0] == "'" or rest[0].isalpha() or rest[0].startswith(TEXT)):
        if rest[0].isalpha() and len(first) < 3:
            return False
        rest = rest[1:]
    while rest[:2] in (["_", "{"], ["^", "{"]):
        end = closes(rest, 1)
        if rest[0] == "^" and rest[2:end] != ["-", "1"]:
            return False
        rest = rest[end + 1 :]
    return not rest or (rest[0] == "(" and closes(rest, 0) == len(rest) - 1 and len(first) == 1)


def _bracketed(tokens: list[str], depth: int) -> Form | None:
    """A pair, an interval, a set, a matrix, or what a single pair of brackets holds."""
    if tokens[0] == "\\begin" and tokens[-2:-1] == ["\\end"] and tokens[1] == tokens[-1] and tokens[1] in _MATRICES:
        return _matrix(tokens, depth)
    if tokens[0] == "]" and tokens[-1] == "[":  # ]1, 2[ is the open interval
        tokens = ["(", *tokens[1:-1], ")"]
    if tokens[0] not in OPENING or tokens[-1] not in CLOSING or closes(tokens, 0) != len(tokens) - 1:
        return None
    inner = tokens[1:-1]
    parts = _split(inner)
    brackets = (tokens[0] + tokens[-1]).replace("\\", "")
    if len(parts) > 1:
        return _listed(tokens, brackets, parts, depth)
    if brackets == "()" and len(inner) == 1 and len(inner[0].strip()) == 1 and inner[0].strip().isalpha():
        return None  # a choice
    holds = brackets in ("()", "{}") or (brackets == "[]" and inner[:1] == ["\\begin"])
    return _read(inner, depth + 1) if holds and inner else None


def _united(tokens: list[str], depth: int) -> Form | None:
    at = top_level(tokens, frozenset({"\\cup"}))
    if not at:
        return None
    ends = [-1, *at, len(tokens)]
    return _listed(tokens, "union", [tokens[i + 1 : j] for i, j in itertools.pairwise(ends)], depth)


def _matrix(tokens: list[str], depth: int) -> Form | None:
    """The rows of a matrix, each a list of its cells."""
    inner = tokens[2:-2]
    if tokens[1] == "array":  # its second argument says how columns are aligned
        inner = inner[closes(inner, 0) + 1 :] if inner[:1] == ["{"] else inner[1:]
    if "\\begin" in inner:
        return None
    rows: list[list[list[str]]] = [[[]]]
    for token in inner:
        if token == "\\\\":
            rows.append([[]])
        elif token == "&":
            rows[-1].append([])
        else:
            rows[-1][-1].append(token)
    rows = [row for row in rows if row != [[]]]
    read = tuple(Form("list", (), parts=tuple(_read(cell, depth + 1) for cell in row), brackets="row") for row in rows)
    return Form("list", _bare(tokens), parts=read, brackets="matrix")


def _leaf(tokens: Sequence[str]) -> Form:
    """An expression with the words around it, or a text."""
    if len(tokens) == 1 and len(tokens[0]) == len(TEXT) + 1 and tokens[0].startswith(TEXT):
        tokens = [tokens[0].removeprefix(TEXT)]  # the letter of a choice
    word = tokens[0].removeprefix(TEXT).strip().lower() if len(tokens) == 1 else ""
    if word in NUMERALS:
        tokens = [str(NUMERALS[word])]
    if tokens[:1] == ["("] and tokens[2:4] == [")", "_"] and tokens[1].isdigit():  # (1011)_2 is 1011_2
        tokens = [tokens[1], *tokens[3:]]
    head, words = parted(tokens)
    if not head:
        return Form("text", _bare(tokens), words=words)
    value = value_of(head)
    if value is not None:
        value, words = multiplied(value, words)
    unsigned = [token for token in head if token not in ("-", "+")]
    decimal = "".join(head) if len(unsigned) == 1 and "." in unsigned[0] and "e" not in unsigned[0].lower() else ""
    if value is None or plain(unsigned[0]) != abs(value):
        decimal = ""
    return Form("leaf", _bare(tokens), head=_bare(head), value=value, decimal=decimal, words=words)
