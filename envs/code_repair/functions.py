"""Reads the rows of HumanEval, of MBPP, and of data sets with the same columns."""

import ast
import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentrl.envs.code_repair.program import used_names

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)


class Function(NamedTuple):
    """A function to write.

    Args:
        purpose: what the agent is told.
        beginning: the text of the file at the start.
        source: the row's own solution.
        visible: the text of a file of tests that the agent sees; empty if there is none.
        hidden: what `judge` needs to run the tests; see `two_sandboxes.Program`.
    """

    purpose: str
    beginning: str
    source: str
    visible: str
    hidden: Mapping[str, Any]


def read_function(row: Mapping[str, Any]) -> Function:
    """A row with the columns of HumanEval (prompt, test, entry_point) or MBPP (text or prompt, code, test_list).

    Raises:
        KeyError, TypeError, ValueError, SyntaxError: the row lacks columns, or they cannot be used.
    """
    return _humaneval(row) if "entry_point" in row else _mbpp(row)


def _humaneval(row: Mapping[str, Any]) -> Function:
    """The prompt is code whose last function is to be written. The tests may use what else it defines.

    A helper function of the prompt runs at the side of the tests, so an answer cannot replace it.
    """
    prompt, entry = str(row["prompt"]).replace("\r\n", "\n"), str(row["entry_point"])
    source = prompt + _one(row.get("canonical_solution"))
    test = "\n".join([*_setup(row), str(row["test"])])
    beginning = f"{prompt.rstrip()}\n    raise NotImplementedError\n"
    given = _body(beginning) or _body(prompt)
    helpers = [node for node in given if getattr(node, "name", "") != entry]
    classes = [node.name for node in helpers if isinstance(node, ast.ClassDef)]
    checks = any(isinstance(node, DEFINITIONS) and node.name == "check" for node in _body(test))
    calls = f"\ncheck({entry})" if checks else ""
    program = f"candidate = {entry}\n{test}{calls}\n"
    if not _tests(test, {entry, "candidate", "solution"}):
        raise ValueError(
            f"its test never runs {entry}, so every answer would pass: it needs check(candidate) or asserts"
        )
    hidden = _hidden(
        [entry, *_missing(source, test, given)], [program], _text([*_imports(source), *helpers]), classes, source
    )
    return Function(prompt.strip(), beginning, source, "", hidden)


def _mbpp(row: Mapping[str, Any]) -> Function:
    """All tests are hidden checks. The first one is also shown to the agent, with the code that sets it up."""
    source = str(row["code"]).replace("\r", "")
    lines, more = _list(row["test_list"]), _list(row.get("challenge_test_list"))
    if not lines:
        raise ValueError("test_list has no test")
    setup = "\n".join(_setup(row))
    tests = [f"{setup}\n{line}" for line in [*lines, *more]]
    names = _missing(source, "\n".join([setup, *lines, *more]), [])
    if not names and not any(_tests(test, {"solution"}) for test in tests):
        raise ValueError("its tests use nothing that its code defines, so every answer would pass")
    visible = f"from solution import *\n{setup}\n\n\ndef test_1():\n{_indented(lines[0])}\n"
    purpose = f"{_one(row.get('text')) or row['prompt']} Your code must pass such tests as: {lines[0]}"
    hidden = _hidden(names, tests, _text(_imports(source)), [], source)
    return Function(purpose, "", source, visible, {**hidden, "shown": 1})


def _hidden(
    names: Sequence[str], tests: Sequence[str], context: str, optional: Sequence[str], source: str
) -> dict[str, Any]:
    kinds = _kinds(_body(source))
    return {
        "module": "solution",
        "names": [*dict.fromkeys(names)],
        "tests": [*tests],
        "context": context,
        "optional": [*optional],
        "classes": _text(kinds),
    }


def _kinds(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements that define classes (also by a call, as named tuples are) and what they may use; none if there
    are no classes."""
    kept: list[ast.stmt] = [
        node for node in body if isinstance(node, (*DEFINITIONS, *IMPORTS, ast.Assign, ast.AnnAssign, ast.Try))
    ]
    made = [node for node in kept if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    called = {ast.unparse(node.value.func).rpartition(".")[2] for node in made}  # type: ignore[attr-defined]
    known = {"namedtuple", "NamedTuple", "Enum", "IntEnum", "Flag", "IntFlag", "StrEnum", "make_dataclass"}
    return kept if called & known or any(isinstance(node, ast.ClassDef) for node in kept) else []


def _tests(test: str, names: set[str]) -> bool:
    """Does a text of tests use one of these names when it is run? True for a text that is no program."""
    body = _body(test)
    functions = {node.name: node for node in body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    if "check" in functions:
        names = {*names, *(one.arg for one in functions["check"].args.args)}
    begun = [name for name in functions if name == "check" or name.startswith("test")]
    reached = [node for node in body if getattr(node, "name", "") not in functions]
    reached += [functions[name] for name in begun]
    for node in reached:  # grows by the functions that are used
        used = used_names(_text(node.body) if isinstance(node, ast.FunctionDef) else ast.unparse(node))  # type: ignore[no-untyped-call]
        if used & names:
            return True
        reached += [functions[name] for name in used & {*functions} if functions[name] not in reached]
    return not body


def _setup(row: Mapping[str, Any]) -> list[str]:
    """The imports and the code that come before the tests."""
    return [
        text.replace("\r", "") for text in [*_list(row.get("test_imports")), _one(row.get("test_setup_code"))] if text
    ]


def _list(value: Any) -> list[str]:
    """Texts of a column: a list, an array of a parquet file, a list written as JSON, or one text."""
    if isinstance(value, str):
        try:
            read = json.loads(value)
        except ValueError:
            read = [value] if value.strip() else []
        value = read if isinstance(read, list) else [value]
    return [] if value is None or isinstance(value, float) else [str(one) for one in value]  # pandas fills with NaN


def _one(value: Any) -> str:
    """The text of a column; empty for None and for the NaN with which pandas fills a column."""
    return value if isinstance(value, str) else ""


def _body(source: str) -> list[ast.stmt]:
    """The statements of a text; none if it is no program."""
    try:
        return ast.parse(source).body
    except SyntaxError:
        return []


def _text(nodes: Sequence[ast.stmt]) -> str:
    return "\n".join(map(ast.unparse, nodes))


def _imports(source: str) -> list[ast.stmt]:
    return [node for node in _body(source) if isinstance(node, IMPORTS)]


def _names(body: Sequence[ast.stmt]) -> list[str]:
    """The names that statements define."""
    found = [node.name for node in body if isinstance(node, DEFINITIONS)]
    for node in body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        found += [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
    return found


def _missing(source: str, test: str, given: Sequence[ast.stmt]) -> list[str]:
    """Names that the tests use, the solution defines, and the statements `given` to the agent do not."""
    used: set[str] = used_names(test)  # type: ignore[no-untyped-call]
    own = {*_names(given), *_names(_body(test))}
    defined = _names(_body(source))
    return [name for name in dict.fromkeys(defined) if name in used and name not in own]


def _indented(test: str) -> str:
    """A test as the body of a function. If a text of the test has several lines, the test is run as a text."""
    moved = textwrap.indent(test, "    ")
    same = ast.dump(ast.parse(textwrap.dedent(moved))) == ast.dump(ast.parse(test))
    wrapped = ast.parse(f"def test():\n{moved}\n").body[0]
    if same and ast.dump(ast.Module(wrapped.body, [])) == ast.dump(ast.parse(test)):  # type: ignore[attr-defined]
        return moved
    return f"    exec({test!r}, globals())"
