"""The corpus as programs: the source, the calls, and the values that the calls return."""

import ast
import functools
import importlib
from importlib.resources import files
from typing import NamedTuple

from agentrl.envs.code_repair.corpus.calls import CALLS

FILES = ("words", "numbers", "lists", "puzzles")
VISIBLE = 3  # the first calls of a program become visible tests; all calls are hidden checks


class Call(NamedTuple):
    """An expression and the text (repr) of its value."""

    expression: str
    expected: str


class Program(NamedTuple):
    """A correct program: one function in a file of its name."""

    name: str
    source: str
    calls: tuple[Call, ...]

    @property
    def purpose(self) -> str:
        """The docstring of the program, which says what the program does."""
        return ast.get_docstring(ast.parse(self.source).body[0]) or ""  # type: ignore[arg-type]

    def test_file(self) -> str:
        """The text of the file with the visible tests."""
        lines = [f"from {self.name} import {self.name}\n"]
        for number, (expression, expected) in enumerate(self.calls[:VISIBLE], 1):
            before, after = repr(f"{expression} returned "), repr(f", it should return {expected}")
            lines += [
                f"\n\ndef test_{number}():\n",
                f"    result = {expression}\n",
                f"    assert result == {expected}, {before} + repr(result) + {after}\n",
            ]
        return "".join(lines)


@functools.cache
def programs() -> dict[str, Program]:
    """All programs by name, in the order of the files."""
    found = {}
    for file in FILES:
        text = files("agentrl.envs.code_repair.corpus").joinpath(f"{file}.py").read_text("utf-8")
        module = importlib.import_module(f"agentrl.envs.code_repair.corpus.{file}")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                source = (ast.get_source_segment(text, node) or "") + "\n"
                expressions = [f"{node.name}({arguments})" for arguments in CALLS[node.name]]
                calls = tuple(Call(one, repr(eval(one, dict(vars(module))))) for one in expressions)
                found[node.name] = Program(node.name, source, calls)
    return found
