"""Runs the tests for the agent, and the hidden checks for the verdict, each time in new sandboxes.

A process that runs the agent's code never decides whether a hidden check passed. If the hidden checks are calls with
known values, the sandbox gets only the calls, and this module compares the values that the sandbox returns. If they are
test programs (HumanEval, MBPP), these run in one sandbox and the agent's functions in another, and only literals pass
between the two.
"""

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.tool import CodeResult, CodeRunner, CodeSession, without_infra_error

RUN_TESTS = """
import glob, importlib, sys
sys.path.insert(0, "")
sys.dont_write_bytecode = True
passed = failed = 0
for path in sorted(glob.glob("test_*.py")):
    try:
        module = importlib.import_module(path[:-3])
    except BaseException as error:
        print(f"{path} cannot be imported: {type(error).__name__}: {error}", flush=True)
        failed += 1
        continue
    for name, test in list(vars(module).items()):
        if name.startswith("test") and callable(test):
            try:
                test()
                passed += 1
            except BaseException as error:
                print(f"{path}: {name} failed: {type(error).__name__}: {error}", flush=True)
                failed += 1
print(f"{passed} passed, {failed} failed", flush=True)
"""
EVALUATE = """
import importlib, json, sys
sys.path.insert(0, "")
sys.dont_write_bytecode = True
def value(module, expression):
    try:
        return repr(eval(expression, vars(importlib.import_module(module))))
    except BaseException as error:
        return f"raised {type(error).__name__}"
print(json.dumps([value(*pair) for pair in PAIRS]))
"""
STAND_IN = """
import builtins, random
class _Unknown(BaseException):
    pass
_known = {}
def _stand_in(name):
    def call(*args, **kwargs):
        asked = repr((name, args, kwargs))
        if asked not in _known:
            raise _Unknown(asked)
        kind, value = _known[asked]
        if kind == "raised":
            error = getattr(builtins, value, None)
            ordinary = isinstance(error, type) and issubclass(error, Exception)
            raise error if ordinary else RuntimeError(value)
        return value
    return call
"""
LONGEST = 20_000  # largest number of characters of a literal that passes between the sandboxes
MOST_CALLS = 300  # largest number of runs of one test program; each run asks for one more value of the agent's code


class Verdict:
    """The number of hidden checks that passed, and the number of all of them.

    Args:
        passed, total: number of checks that passed, and number of all checks.
        unseen: the outcomes of the checks that no visible test shows, one per check; None: no test shows any check.
    """

    def __init__(self, passed: int, total: int, unseen: Sequence[bool] | None = None) -> None:
        self.passed, self.total = passed, total
        self._unseen = [True] * passed + [False] * (total - passed) if unseen is None else list(unseen)

    @property
    def solved(self) -> bool:
        """Every check passed."""
        return self.passed == self.total > 0

    @property
    def share(self) -> float:
        """The share of the unseen checks that passed, from 0 to 1: an agent gains nothing by writing the values of the
        visible tests into its code. If the visible tests show every check: 1 if all checks passed, else 0."""
        return sum(self._unseen) / len(self._unseen) if self._unseen else float(self.solved)


def run_tests(runner: CodeRunner, files: Mapping[str, str], timeout_s: float) -> CodeResult:
    """The result of running the files test_*.py in a new sandbox. Raises ToolFault if the sandbox fails."""
    with _closing(runner.session(files, stateful=False)) as session:
        return without_infra_error(session.run(RUN_TESTS, timeout_s))


def check_calls(
    runner: CodeRunner,
    files: Mapping[str, str],
    calls: Sequence[tuple[str, str, str]],
    timeout_s: float,
    visible: Sequence[str] = (),
) -> Verdict:
    """Evaluate calls in a new sandbox and compare their values with the expected ones.

    Args:
        runner: opens the sandbox.
        files: the agent's code by path.
        calls: every hidden call, as (module, expression, repr of the expected value).
        timeout_s: seconds for all calls together.
        visible: texts of the tests that the task gave to the agent. A call whose expression occurs in one of them is
            not counted as unseen; white space does not matter.

    Raises:
        ToolFault: the sandbox failed.
    """
    pairs = [[module, expression] for module, expression, _ in calls]
    with _closing(runner.session(files, stateful=False)) as session:
        result = without_infra_error(session.run(f"PAIRS = {pairs!r}\n{EVALUATE}", timeout_s))
    values = _last_list(result.stdout)
    values += [None] * (len(calls) - len(values))
    right = [value == expected for value, (_, _, expected) in zip(values, calls, strict=False)]
    seen = ["".join(text.split()) for text in visible]
    unseen = [
        one
        for one, (_, expression, _) in zip(right, calls, strict=True)
        if not any("".join(expression.split()) in text for text in seen)
    ]
    return Verdict(sum(right), len(calls), unseen)


def _last_list(text: str) -> list[object]:
    """The JSON list on the last line; empty if there is none."""
    try:
        value = json.loads(text.rstrip("\n").rpartition("\n")[2])
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def check_program(
    runner: CodeRunner,
    files: Mapping[str, str],
    module: str,
    names: Sequence[str],
    tests: Sequence[str],
    timeout_s: float,
) -> Verdict:
    """Run test programs, which call functions of the agent's module by name; each program counts as one check.

    The test programs and the agent's code run in two sandboxes. When a test program calls one of the agent's
    functions with new arguments, it stops, the call is carried out in the agent's sandbox, and the test program runs
    again from its beginning with the value. Arguments and values must be literals. A test program does not see whether
    a function changes its arguments.

    Raises:
        ToolFault: a sandbox failed.
    """
    passed = 0
    with _closing(runner.session(files)) as theirs, _closing(runner.session({})) as ours:
        setup = f"import sys\nsys.path.insert(0, '')\nsys.dont_write_bytecode = True\nimport {module} as _module\n"
        if not without_infra_error(theirs.run(setup, timeout_s)).ok:
            return Verdict(0, len(tests))
        for test in tests:
            passed += _one_program(ours, theirs, names, test, timeout_s)
    return Verdict(passed, len(tests))


def _one_program(ours: CodeSession, theirs: CodeSession, names: Sequence[str], test: str, timeout_s: float) -> bool:
    stand_ins = "".join(f"{name} = _stand_in({name!r})\n" for name in names)
    known: dict[str, tuple[str, object]] = {}
    for _ in range(MOST_CALLS):
        code = f"{STAND_IN}{stand_ins}random.seed(0)\n_known.update({known!r})\n{test}\n"
        result = without_infra_error(ours.run(code, timeout_s))
        if result.ok:
            return True
        if result.error_name != "_Unknown" or len(result.error_value) > LONGEST:
            return False
        known[result.error_value] = _ask(theirs, result.error_value, timeout_s)
    return False


def _ask(theirs: CodeSession, asked: str, timeout_s: float) -> tuple[str, object]:
    """Have the agent's code carry out a call; returns ("value", literal) or ("raised", the exception's name)."""
    try:
        name, args, kwargs = _literal(asked)
    except (ValueError, TypeError):
        return "raised", "TypeError"
    call = f"_args, _kwargs = {args!r}, {kwargs!r}\nprint()\nprint(repr(getattr(_module, {name!r})(*_args, **_kwargs)))"
    result = without_infra_error(theirs.run(call, timeout_s))
    if not result.ok:
        return "raised", result.error_name or "TimeoutError"
    told = result.stdout.rstrip("\n").rpartition("\n")[2]
    if len(told) > LONGEST:
        return "raised", "OverflowError"
    try:
        return "value", _literal(told)
    except ValueError:
        return "raised", "TypeError"


def _literal(text: str) -> Any:
    """The value of a text that the agent's code may have made up.

    Raises:
        ValueError: the text is no literal (a set of lists is none), or its value cannot be written again, such as a
            hexadecimal number that has more digits in decimal than Python writes.
    """
    try:
        value = ast.literal_eval(text)
        repr(value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{text[:60]!r} is no literal") from None
    return value


class _closing:
    """`contextlib.closing` for sessions."""

    def __init__(self, session: CodeSession) -> None:
        self._session = session

    def __enter__(self) -> CodeSession:
        return self._session

    def __exit__(self, *reason: object) -> None:
        self._session.close()
