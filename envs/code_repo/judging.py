"""Who decides: calls with known values, compared here; or a user's own tests, which must pass and be able to fail.

A user's tests run in one process with the agent's code, so what that process says may be forged: an exit code by
`os._exit(0)`, a patched test runner, a `conftest.py`. Two things stand against it. Tests, their settings and files that
Python or a test runner reads at its start are put back as they were. And after the tests have passed they run again
with one more test that must fail: code that makes that one pass too has forged the first result.

Limit: code that looks for the tests in its process, and tells the one that must fail from the others, is not stopped.
"""

import ast
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

from agentrl.envs.code_repair import judge
from agentrl.envs.code_repo import shell
from agentrl.envs.code_repo.files import Files, judged, protected
from agentrl.tool import CodeRunner

TRAP = """
def test_{word}():
    assert {first} == {second}


import unittest


class Test{word}(unittest.TestCase):
    def test_{word}(self):
        self.assertEqual({first}, {second})

"""


class Verdict(NamedTuple):
    """Is the repository repaired (`solved`), which share of the unseen checks passes, and was a result forged?"""

    solved: bool
    share: float
    forged: bool = False


def verdict(runner: CodeRunner, original: Files, now: Files, hidden: Mapping[str, Any], timeout_s: float) -> Verdict:
    """Judge a repository.

    Args:
        runner: opens the sandboxes.
        original, now: the repository as it was given, and as it is.
        hidden: `calls`, [module, expression, repr of its value] each; or `files`, the tests as they are, and `command`.
        timeout_s: of one run.

    Raises:
        ToolFault: the sandbox failed.
    """
    files = judged(original, now)
    if "calls" in hidden:
        code = {path: text for path, text in files.items() if not protected(path)}
        visible = [text for path, text in original.items() if protected(path)]
        found = judge.check_calls(runner, code, [tuple(call) for call in hidden["calls"]], timeout_s, visible)
        return Verdict(found.solved, found.share)
    files = {**files, **hidden["files"]}
    if not passes(runner, files, hidden["command"], timeout_s):
        return Verdict(False, 0.0)
    forged = not trapped(runner, files, sorted(hidden["files"]), hidden["command"], timeout_s)
    return Verdict(not forged, float(not forged), forged)


def passes(runner: CodeRunner, files: Files, command: str, timeout_s: float) -> bool:
    """Does a test command end with exit code 0?"""
    return shell.run(runner, files, command, timeout_s, keep=False).code == 0


def trapped(runner: CodeRunner, files: Files, tests: list[str], command: str, timeout_s: float) -> bool:
    """Does the command fail when the last of these tests' files has one more test, which must fail?"""
    path = next(path for path in reversed(tests) if path.endswith(".py"))
    return not passes(runner, {**files, path: with_trap(files[path])}, command, timeout_s)


def with_trap(source: str) -> str:
    """A test file with one more test, which fails; its name and values are random, so that code cannot know them."""
    word = "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(10))
    number = secrets.randbelow(900) + 100
    trap = TRAP.format(word=word, first=[number, number + 7], second=[number + 7, number])
    try:
        last = ast.parse(source).body[-1]
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
        return f"{source}\n{trap}"
    if not isinstance(last, ast.If) or "__name__" not in ast.dump(last.test):
        return f"{source}\n\n{trap}"
    lines = source.split("\n")
    return "\n".join([*lines[: last.lineno - 1], trap, *lines[last.lineno - 1 :]])
