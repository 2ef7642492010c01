"""No function has more than 60 lines without its docstring, and no module more than 500."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("agentrl", "algorithms", "envs", "tools", "benchmarks", "docs", "examples")
MAX_FUNCTION, MAX_MODULE = 60, 500


def lines_of_functions(source: str) -> dict[str, int]:
    """Name and line of each function -> its lines from `def` to its end, without the docstring."""
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            docstring = node.body[0] if ast.get_docstring(node) is not None else None
            documented = docstring.end_lineno - docstring.lineno + 1 if docstring is not None else 0
            found[f"{node.name}:{node.lineno}"] = node.end_lineno - node.lineno + 1 - documented
    return found


def modules() -> list[Path]:
    found = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    return [file for file in dict.fromkeys(file.resolve() for file in found) if ".venv" not in file.parts]


def test_lines_are_counted_without_the_docstring():
    source = 'def f(\n    a: int,\n) -> int:\n    """One.\n\n    Two.\n    """\n    return a\n\n\nasync def g(): ...\n'
    assert lines_of_functions(source) == {"f:1": 4, "g:11": 1}


def test_functions_and_modules_are_short():
    assert len(modules()) > 300
    long = {}
    for file in modules():
        source, name = file.read_text(), file.relative_to(ROOT)
        if source.count("\n") > MAX_MODULE:
            long[f"{name}"] = source.count("\n")
        for function, count in lines_of_functions(source).items():
            if count > MAX_FUNCTION:
                long[f"{name}:{function}"] = count
    assert long == {}, "split them: one idea per function, one subject per file (CONTRIBUTING.md)"
