"""No function has more than 60 lines without its docstring, no module more than 500, no class more than 20 methods."""

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("agentrl", "algorithms", "envs", "tools", "benchmarks", "docs", "examples")
MAX_FUNCTION, MAX_MODULE, MAX_METHODS = 60, 500, 20
WITH_SMALL_CLASSES = ("agentrl", "algorithms", "envs", "tools")


def definitions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Functions and classes below a node, nested ones included; expressions hold none."""
    for below in ast.iter_child_nodes(node):
        if isinstance(below, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield below
        if not isinstance(below, ast.expr):
            yield from definitions(below)


@cache
def lines_and_methods(source: str) -> tuple[dict[str, int], dict[str, int]]:
    """Name and line of each function -> its lines from `def` to its end, without the docstring; and of each class ->
    its functions, properties and private methods included; inherited ones not."""
    lines, methods = {}, {}
    for node in definitions(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            methods[f"{node.name}:{node.lineno}"] = sum(
                isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in node.body
            )
        else:
            assert node.end_lineno is not None
            docstring = node.body[0] if ast.get_docstring(node) is not None else None
            documented = docstring.end_lineno - docstring.lineno + 1 if docstring is not None else 0
            lines[f"{node.name}:{node.lineno}"] = node.end_lineno - node.lineno + 1 - documented
    return lines, methods


def modules(packages: Sequence[str] = PACKAGES) -> list[Path]:
    found = [file for package in packages for file in (ROOT / package).rglob("*.py")]
    return [file for file in dict.fromkeys(file.resolve() for file in found) if ".venv" not in file.parts]


def test_lines_are_counted_without_the_docstring():
    source = 'def f(\n    a: int,\n) -> int:\n    """One.\n\n    Two.\n    """\n    return a\n\n\nasync def g(): ...\n'
    assert lines_and_methods(source)[0] == {"f:1": 4, "g:11": 1}


def test_methods_are_counted_with_properties_and_without_nested_classes():
    source = (
        "class A:\n    b = 1\n\n    @property\n    def c(self): ...\n\n    async def _d(self): ...\n\n"
        "    class E:\n        def f(self): ...\n"
    )
    assert lines_and_methods(source)[1] == {"A:1": 2, "E:9": 1}


def test_classes_have_few_methods():
    large = {
        f"{file.relative_to(ROOT)}:{name}": count
        for file in modules(WITH_SMALL_CLASSES)
        for name, count in lines_and_methods(file.read_text())[1].items()
        if count > MAX_METHODS
    }
    assert large == {}, "split them: one subject per class"


def test_functions_and_modules_are_short():
    assert len(modules()) > 300
    long = {}
    for file in modules():
        source, name = file.read_text(), file.relative_to(ROOT)
        if source.count("\n") > MAX_MODULE:
            long[f"{name}"] = source.count("\n")
        for function, count in lines_and_methods(source)[0].items():
            if count > MAX_FUNCTION:
                long[f"{name}:{function}"] = count
    assert long == {}, "split them: one idea per function, one subject per file (CONTRIBUTING.md)"
