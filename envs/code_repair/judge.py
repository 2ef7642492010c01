"""Runs the tests for the agent, and the hidden checks for the verdict, each time in new sandboxes.

A process that runs the agent's code never decides whether a hidden check passed. If the hidden checks are calls with
known values, the sandbox gets only the calls, and this module compares the values that the sandbox returns. If they are
test programs (HumanEval, MBPP), `two_sandboxes` runs them.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing

from agentrl.tool import CodeResult, CodeRunner, without_infra_error

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


class Verdict:
    """The number of hidden checks that passed, and the number of all of them.

    Args:
        passed, total: number of checks that passed, and number of all checks.
        unseen: the outcomes of the checks that no visible test shows, one per check; None: no test shows any check.
        failures: why checks failed, one sentence each.
        refused: number of checks that failed because a value or an operation does not pass between the two sandboxes.
    """

    def __init__(
        self,
        passed: int,
        total: int,
        unseen: Sequence[bool] | None = None,
        failures: Sequence[str] = (),
        refused: int = 0,
    ) -> None:
        self.passed, self.total = passed, total
        self.failures, self.refused = tuple(failures), refused
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
    with closing(runner.session(files, stateful=False)) as session:
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
    with closing(runner.session(files, stateful=False)) as session:
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
