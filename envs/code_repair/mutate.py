"""Small mistakes in correct programs, one expression each, written so that all other characters stay.

The kinds are those of mutation testing (Offutt et al., "An experimental determination of sufficient mutant operators",
TOSEM 1996): relations, arithmetic, logic and constants replaced, plus a few that people make.
"""

import ast
from collections.abc import Iterator
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


class Mutation(NamedTuple):
    """One mistake: `source[start:end]` becomes `text`.

    `kind` is relation, arithmetic, logic, constant, name or negation.
    """

    kind: str
    start: int
    end: int
    text: str


def mutations(source: str) -> list[Mutation]:
    """Every mistake of these kinds in a program, in the order of the text; [] if it does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line.encode()))
    data = source.encode()
    found = []
    for node in ast.walk(tree):
        for kind, changed in _changes(node):
            assert isinstance(node, ast.expr | ast.AugAssign)
            start = lines[node.lineno - 1] + node.col_offset
            end = lines[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            at, until = len(data[:start].decode()), len(data[:end].decode())
            found.append(Mutation(kind, at, until, changed))
    changed_ones = [m for m in found if m.text != source[m.start : m.end]]
    return list(dict.fromkeys(sorted(changed_ones, key=lambda m: (m.start, m.end, m.text))))


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
