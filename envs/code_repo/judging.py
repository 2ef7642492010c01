"""Judges a repository by calls with known values, or by a user's own tests.

A user's tests run in one process with the agent's code, so the code may forge the result of the process: by
`os._exit(0)`, a patched test runner, or a `conftest.py`. There are two measures against this. First, tests, their
settings, and files that Python or a test runner reads at its start are put back as they were. Second, after the
tests have passed, they run again with one more test that must fail, once for each form (function or method) that the
tests have. If the command succeeds with this test too, the code has forged the first result.

Limit: code that searches its process for the tests, and recognises the test that must fail, is not stopped.
"""

import ast
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

from agentrl.envs.code_repair import judge
from agentrl.envs.code_repo import shell
from agentrl.envs.code_repo.files import Files, judged, protected
from agentrl.tool import CodeRunner

TRAPS = {  # a test that fails, in each form that test runners know
    "function": "\ndef test_{word}():\n    assert {first} == {second}\n\n",
    "method": "\nimport unittest\n\n\nclass Test{word}(unittest.TestCase):\n    def test_{word}(self):\n"
    "        self.assertEqual({first}, {second})\n\n",
}


class Verdict(NamedTuple):
    """Whether the repository is repaired, the share of the unseen checks that pass, and whether a result was forged.

    A user's own tests count as one check.
    """

    solved: bool
    share: float
    forged: bool = False


def verdict(runner: CodeRunner, original: Files, now: Files, hidden: Mapping[str, Any], timeout_s: float) -> Verdict:
    """Judge a repository.

    Args:
        runner: opens the sandboxes.
        original, now: the repository as it was given, and as it is.
        hidden: either `calls`, a list of [module, expression, repr of its value]; or `files` (texts of the tests by
            path), `command` (which runs them), and `forms` (the forms of tests that the command runs; if it is missing
            or empty, the forms that the function `forms` finds).
        timeout_s: seconds of one run of the command, or of all calls together.

    Raises:
        ToolFault: the sandbox failed.
    """
    files = judged(original, now)
    if "calls" in hidden:
        code = {path: text for path, text in files.items() if not protected(path)}
        visible = [text for path, text in original.items() if protected(path)]
        found = judge.check_calls(runner, code, [tuple(call) for call in hidden["calls"]], timeout_s, visible)
        return Verdict(found.solved, found.share)
    files, tests = {**files, **hidden["files"]}, dict(hidden["files"])
    if not passes(runner, files, hidden["command"], timeout_s):
        return Verdict(False, 0.0)
    known = hidden.get("forms") or forms(tests)
    forged = not all(trapped(runner, files, tests, form, hidden["command"], timeout_s) for form in known)
    return Verdict(not forged, float(not forged), forged)


def passes(runner: CodeRunner, files: Files, command: str, timeout_s: float) -> bool:
    """Does a test command end with exit code 0?"""
    return shell.run(runner, files, command, timeout_s, keep=False).code == 0


def trapped(runner: CodeRunner, files: Files, tests: Files, form: str, command: str, timeout_s: float) -> bool:
    """Does the command fail when one more test, which must fail, is put into one of these files, drawn at random?"""
    having = [path for path in sorted(tests) if path.endswith(".py") and form in forms({path: tests[path]})]
    path = secrets.choice(having or [path for path in sorted(tests) if path.endswith(".py")])
    return not passes(runner, {**files, path: with_trap(files[path], form)}, command, timeout_s)


def forms(tests: Files) -> list[str]:
    """The forms of the tests in some files: `function`, and `method` of a TestCase; `function` if no form was found."""
    found = set()
    for source in tests.values():
        try:
            body = ast.parse(source).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in body:
            if isinstance(node, ast.ClassDef) and node.bases:
                found.add("method")
            elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.lower().startswith("test"):
                found.add("function")
    return sorted(found) or ["function"]


def with_trap(source: str, form: str = "function") -> str:
    """A test file with one more test, which fails; its name and values are random, so that code cannot know them."""
    word = "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(10))
    number = secrets.randbelow(900) + 100
    trap = TRAPS[form].format(word=word, first=[number, number + 7], second=[number + 7, number])
    try:
        last = ast.parse(source).body[-1]
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
        return f"{source}\n{trap}"
    if not isinstance(last, ast.If) or "__name__" not in ast.dump(last.test):
        return f"{source}\n\n{trap}"
    lines = source.split("\n")
    return "\n".join([*lines[: last.lineno - 1], trap, *lines[last.lineno - 1 :]])
