"""Mistakes in modules: those of `code_repair.mutate`, and others: a condition is negated, `break` and `continue` are
exchanged, a statement is left out, a value is not returned, or the first two arguments of a call are exchanged.

`mistakes.json` lists, per module, the mistakes that make a task: the original passes every call, and the mutant fails
at least one call of the visible tests and at least one other call, but not all calls. The file has the text of each
mistake, because `ast.unparse` may write it differently under another version of Python.
"""

import ast
import functools
import hashlib
import json
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

from agentrl.envs.code_repair.mutate import Mutation, apply, mutations, nodes, spans
from agentrl.envs.code_repo.modules import Module, values
from agentrl.tool import CodeRunner

LONGEST = 100_000  # largest number of characters of a module
MOST = 40  # largest number of mistakes per module that make tasks
LEFT_OUT = (ast.Expr, ast.Assign, ast.AugAssign)  # statements that a mistake may leave out


class Mistake(NamedTuple):
    """A mistake that makes a task; `undo` says whether a single change that the compact form lists undoes it."""

    mutation: Mutation
    undo: bool


def mistakes(source: str, part: tuple[int, int] | None = None) -> list[Mutation]:
    """Every mistake that can be made in a program, or in `part` = (begin, end) of its text, in the order of the text.

    The list is empty if the program does not parse, has more than LONGEST characters, or is nested too deeply.
    """
    if len(source) > LONGEST:
        return []
    try:
        found = [*mutations(source, LONGEST, part), *_of_statements(source, part)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    changed = [one for one in found if one.text != source[one.start : one.end]]
    return list(dict.fromkeys(sorted(changed, key=lambda m: (m.start, m.end, m.text))))


def _of_statements(source: str, part: tuple[int, int] | None) -> Iterator[Mutation]:
    span = spans(source)
    for node in nodes(source, part):
        match node:
            case ast.If(test=test) | ast.While(test=test):
                yield Mutation("condition", *span(test), f"not ({_text(source, span(test))})")
            case ast.Break():
                yield Mutation("jump", *span(node), "continue")
            case ast.Continue():
                yield Mutation("jump", *span(node), "break")
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield Mutation("return", *span(value), "None")
            case ast.Call(args=[ast.expr() as first, ast.expr() as second, *_]):
                texts = _text(source, span(first)), _text(source, span(second))
                between = source[span(first)[1] : span(second)[0]]
                yield Mutation("argument", span(first)[0], span(second)[1], texts[1] + between + texts[0])
        for body in (getattr(node, name, None) for name in ("body", "orelse")):
            for statement in body if isinstance(body, list) and isinstance(node, ast.stmt) else ():
                if isinstance(statement, LEFT_OUT) and not _is_docstring(statement):
                    yield Mutation("missing", *span(statement), "pass")


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _text(source: str, span: tuple[int, int]) -> str:
    return source[span[0] : span[1]]


def undoing(source: str, mutation: Mutation) -> Mutation | None:
    """The first mutation of the broken program after which it means the same as the original; None if there is none."""
    return next(
        same_meaning(apply(source, mutation), mutation.start, mutation.start + len(mutation.text), source), None
    )


def same_meaning(source: str, start: int, end: int, wanted: str) -> Iterator[Mutation]:
    """The mutations that touch source[start:end] and give a program with the meaning of `wanted`."""
    aim = meaning(wanted)
    for one in mistakes(source):
        if one.start < end and one.end > start and meaning(apply(source, one)) == aim:
            yield one


def meaning(source: str) -> str:
    """A text that is equal for programs that differ only in their layout; empty if the program does not parse."""
    try:
        return ast.dump(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


@functools.cache
def listed() -> dict[str, tuple[Mistake, ...]]:
    """Module name -> its mistakes that make a task."""
    found = json.loads(files("agentrl.envs.code_repo").joinpath("mistakes.json").read_text("utf-8"))
    return {
        name: tuple(Mistake(Mutation(kind, start, end, text), undo) for kind, start, end, text, undo in rows)
        for name, rows in found.items()
    }


def makes_a_task(runner: CodeRunner, module: Module, mutation: Mutation) -> bool:
    """Does the mutant end in time, and fail a visible call and another call, but not all calls?"""
    broken = apply(module.source, mutation)
    if not meaning(broken):
        return False
    expressions = tuple(expression for expression, _ in module.calls)
    given = values(runner, module.name, broken, expressions)
    if len(given) != len(module.calls):
        return False
    right = [value == expected for value, (_, expected) in zip(given, module.calls, strict=True)]
    visible = set(module.visible())
    failed = {number for number, one in enumerate(right) if not one}
    # A mistake that breaks all calls, such as one that prevents the import, makes no task.
    return bool(failed & visible) and bool(failed - visible) and len(failed) < len(right)


def verified(runner: CodeRunner, module: Module) -> list[Mistake]:
    """At most MOST mistakes that make a task, in the order of the text.

    If there are more, hashes of the mistakes choose among them, so that the choice is the same in every run.

    Raises:
        ValueError: the original fails a call.
    """
    expressions = tuple(expression for expression, _ in module.calls)
    if values(runner, module.name, module.source, expressions) != [expected for _, expected in module.calls]:
        raise ValueError(f"the original of {module.name} fails its own calls: run agentrl envs code_repo collect")
    found: list[Mistake] = []
    order = sorted(mistakes(module.source), key=lambda m: hashlib.sha256(repr(m).encode()).digest())
    for mutation in order:
        if len(found) < MOST and makes_a_task(runner, module, mutation):
            found.append(Mistake(mutation, undoing(module.source, mutation) is not None))
    return sorted(found, key=lambda one: one.mutation[1:])
