"""Small mistakes in correct programs. A mistake rewrites one expression or augmented assignment and no other text.

As in mutation testing (Offutt et al., "An experimental determination of sufficient mutant operators", TOSEM 1996), a
mistake replaces a relation or an arithmetic operator by another one, or exchanges `and` and `or`. Other mistakes change
a constant, exchange `min` and `max`, or leave out a `not`.
"""

import ast
import re
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import NamedTuple

RELATIONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt,),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt,),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add, ast.FloorDiv),
    ast.FloorDiv: (ast.Mult, ast.Mod),
    ast.Mod: (ast.FloorDiv, ast.Mult),
}
NAMES = {"min": "max", "max": "min"}
LONGEST = 20_000  # largest number of characters of a program
# Lines as Python counts them. `splitlines` would also cut at U+2028, which a string of the program may contain.
_LINES = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")


class Mutation(NamedTuple):
    """One mistake: `source[start:end]` becomes `text`.

    `kind` is relation, arithmetic, logic, constant, name or negation.
    """

    kind: str
    start: int
    end: int
    text: str


def mutations(source: str, longest: int = LONGEST, part: tuple[int, int] | None = None) -> list[Mutation]:
    """Every mistake that can be made in a program, in the order of the text.

    Args:
        source: the program.
        longest: largest number of characters of the program.
        part: (begin, end) of the text in which mistakes are made; None: all of it.

    Returns:
        The mistakes. The list is empty if the program does not parse, has more than `longest` characters, or is nested
        too deeply.
    """
    if len(source) > longest:
        return []
    try:
        found = list(_mutations(source, part))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    changed_ones = [m for m in found if m.text != source[m.start : m.end]]
    return list(dict.fromkeys(sorted(changed_ones, key=lambda m: (m.start, m.end, m.text))))


def _mutations(source: str, part: tuple[int, int] | None) -> Iterator[Mutation]:
    """The mistakes in the order of the tree; some may be equal, or may leave the text as it is."""
    span = spans(source)
    for node in nodes(source, part):
        for kind, changed in _changes(node):
            assert isinstance(node, ast.expr | ast.AugAssign)
            yield Mutation(kind, *span(node), changed)


def nodes(source: str, part: tuple[int, int] | None = None) -> Iterator[ast.AST]:
    """The nodes of a program's tree; with `part`, only the expressions and statements inside this part of the text.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: the program does not parse.
    """
    first, last = (
        (0, len(source)) if part is None else (source.count("\n", 0, part[0]), source.count("\n", 0, part[1]) + 1)
    )
    span = spans(source)
    for node in ast.walk(ast.parse(source)):
        if part is None:
            yield node
        elif isinstance(node, ast.expr | ast.stmt) and first <= node.lineno <= (node.end_lineno or 0) <= last + 1:
            begin, end = span(node)
            if part[0] <= begin and end <= part[1]:
                yield node


def spans(source: str) -> Callable[[ast.expr | ast.stmt], tuple[int, int]]:
    """A function from a node to its (begin, end) in the text, in characters; the columns of a node count bytes."""
    lines = _LINES.findall(source)
    starts = list(accumulate(map(len, lines), initial=0))

    def place(line: int, column: int) -> int:
        return int(starts[line - 1] + len(lines[line - 1].encode()[:column].decode()))

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        end = place(node.end_lineno or node.lineno, node.end_col_offset or 0)
        return place(node.lineno, node.col_offset), end

    return span


def apply(source: str, mutation: Mutation) -> str:
    """The program with the mistake in it."""
    return source[: mutation.start] + mutation.text + source[mutation.end :]


def _changes(node: ast.AST) -> Iterator[tuple[str, str]]:
    """(kind, new text) of the mistakes that can be made at one node."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            for other in RELATIONS.get(type(operator), ()):
                yield "relation", ast.unparse(ast.Compare(left, [other()], [right]))
        case ast.BinOp(left=left, op=operator, right=right):
            for other in ARITHMETIC.get(type(operator), ()):
                yield "arithmetic", ast.unparse(ast.BinOp(left, other(), right))
        case ast.AugAssign(target=target, op=operator, value=value):
            for other in ARITHMETIC.get(type(operator), ())[:1]:
                yield "arithmetic", ast.unparse(ast.AugAssign(target, other(), value))
        case ast.BoolOp(op=operator, values=values):
            yield "logic", ast.unparse(ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "negation", ast.unparse(operand)
        case ast.Constant(value=bool() as value):
            yield "constant", repr(not value)
        case ast.Constant(value=int() as value):
            yield "constant", str(value + 1)
            if value > 0:
                yield "constant", str(value - 1)
        case ast.Name(id=name) if name in NAMES:
            yield "name", NAMES[name]
