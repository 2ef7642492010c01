"""The modules of the generated repositories: pure Python of the standard library (CPython 3.11, see NOTICE.txt).

`calls.json` has calls for each module: expressions that use the module's own names. The values of the calls (`repr`)
tell a right module from a wrong one. Every third call becomes a visible test. All calls are hidden checks. `agentrl
envs code_repo collect` writes the sources and the values to `modules.json.gz`.
"""

import ast
import functools
import gzip
import importlib.util
import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from agentrl.envs.code_repair import judge
from agentrl.tool import CodeRunner, without_infra_error

PACKAGE = "kit"  # name of the repository's package: a module under its own name would hide the original
VISIBLE_EVERY = 3  # every third call becomes a visible test
ORIGINS = {  # name -> name in the standard library, for modules that have another name there
    "parseaddr": "email._parseaddr",
    "quoprimime": "email.quoprimime",
    "punycode": "encodings.punycode",
    "headers": "wsgiref.headers",
    "version": "distutils.version",
    "util": "unittest.util",
}
TIMEOUT_S = 5.0
ODD = ("raised NameError", "raised SyntaxError")  # values that show a mistake in calls.json
RUNNER = '''"""Runs the tests: python -m tests"""

import importlib
import os
import sys

passed = failed = 0
folder = os.path.dirname(os.path.abspath(__file__))
for name in sorted(os.listdir(folder)):
    if not name.startswith("test_") or not name.endswith(".py"):
        continue
    try:
        module = importlib.import_module("tests." + name[:-3])
    except Exception as error:
        print(f"tests/{name} cannot be imported: {type(error).__name__}: {error}")
        failed += 1
        continue
    for test, function in list(vars(module).items()):
        if test.startswith("test_") and callable(function):
            try:
                function()
                passed += 1
            except Exception as error:
                print(f"tests/{name}: {test} failed: {type(error).__name__}: {error}")
                failed += 1
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
'''


@dataclass(frozen=True)
class Module:
    """A correct module.

    Attributes:
        name: its name in the repository's package.
        origin: its name in the standard library, which the sandbox hides.
        source: its text.
        calls: (expression, repr of its value) of each call; "raised NAME" for an exception.
    """

    name: str
    origin: str
    source: str
    calls: tuple[tuple[str, str], ...]

    @property
    def path(self) -> str:
        """The path of the module in the repository."""
        return f"{PACKAGE}/{self.name}.py"

    @functools.cached_property
    def purpose(self) -> str:
        """The first line of the module's docstring."""
        return (ast.get_docstring(ast.parse(self.source)) or f"The module {self.name}.").split("\n")[0]

    def visible(self) -> list[int]:
        """Numbers of the calls that become visible tests."""
        return list(range(0, len(self.calls), VISIBLE_EVERY))

    @functools.cached_property
    def test_file(self) -> str:
        """The text of the file with the visible tests."""
        asked = [ast.parse(self.calls[number][0]) for number in self.visible()]
        used = {node.id for tree in asked for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names = sorted(used & _globals(self.source))
        lines = [f"from {PACKAGE}.{self.name} import {', '.join(names)}\n"]
        for number in self.visible():
            lines += ["\n\n", _test(number, *self.calls[number])]
        return "".join(lines)


def _globals(source: str) -> set[str]:
    """The names that a module's top-level statements define or assign; imported names are not among them."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        else:
            found |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return found


def _test(number: int, expression: str, expected: str) -> str:
    """A test of one call, as source."""
    if expected.startswith("raised "):
        return (
            f"def test_{number}():\n    try:\n        {expression}\n    except Exception as error:\n"
            f"        assert type(error).__name__ == {expected[7:]!r}, f'{{error!r}} was raised'\n    else:\n"
            f"        assert False, 'no exception was raised'\n"
        )
    return (
        f"def test_{number}():\n    result = {expression}\n    expected = {expected!r}\n"
        f"    assert repr(result) == expected, f'{{result!r}} is not {{expected}}'\n"
    )


@functools.cache
def calls() -> dict[str, tuple[str, ...]]:
    """The calls of each module by its name."""
    found = json.loads(files("agentrl.envs.code_repo").joinpath("calls.json").read_text("utf-8"))
    return {name: tuple(expressions) for name, expressions in found.items()}


@functools.cache
def modules() -> dict[str, Module]:
    """All modules by name."""
    text = gzip.decompress(files("agentrl.envs.code_repo").joinpath("modules.json.gz").read_bytes())
    return {
        name: Module(
            name, ORIGINS.get(name, name), one["source"], tuple(zip(calls()[name], one["values"], strict=True))
        )
        for name, one in json.loads(text).items()
    }


def values(runner: CodeRunner, module: str, source: str, expressions: tuple[str, ...]) -> list[object]:
    """The values of calls with this source, in a fresh sandbox; [] if the code hangs or ends the process."""
    pairs = [[f"{PACKAGE}.{module}", expression] for expression in expressions]
    session = runner.session({f"{PACKAGE}/__init__.py": "", f"{PACKAGE}/{module}.py": source}, stateful=False)
    try:
        result = without_infra_error(session.run(f"PAIRS = {pairs!r}\n{judge.EVALUATE}", TIMEOUT_S))
    finally:
        session.close()
    return judge._last_list(result.stdout)


def collect(runner: CodeRunner) -> bytes:
    """The content of `modules.json.gz`, from the standard library of this Python.

    Raises:
        ValueError: this Python lacks a module; a call gives different values in two runs; or a value is a NameError, a
            SyntaxError, or shows an address in memory.
    """
    found = {}
    for name, expressions in calls().items():
        spec = importlib.util.find_spec(ORIGINS.get(name, name))
        if spec is None or spec.origin is None:
            raise ValueError(f"this Python has no module {ORIGINS.get(name, name)}: collect with CPython 3.11")
        source = Path(spec.origin).read_text("utf-8")
        first, second = (values(runner, name, source, expressions) for _ in range(2))
        if first != second or len(first) != len(expressions):
            raise ValueError(
                f"two runs of the calls of {name} gave {first} and {second}: write calls that give the same value in "
                "every run"
            )
        odd = [text for text in map(str, first) if " at 0x" in text or text in ODD]
        if odd:
            raise ValueError(f"calls of {name} give {odd}: write calls with plain values")
        found[name] = {"source": source, "values": first}
    return gzip.compress(json.dumps(found, sort_keys=True).encode(), mtime=0)
