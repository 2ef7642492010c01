"""Runs test programs against the agent's code: the tests in one sandbox, the code in another.

So the agent's code can neither read the tests nor decide whether they passed. Between the sandboxes pass JSON texts,
which this module carries without reading them. What the texts can hold is in `crossing`; what the agent's code may do
to objects of the tests, and how objects of its own classes are compared, is in `peer`, `standin` and `twins`.

Limits: a test fails, and the verdict says why, if it derives a class from one of the agent's classes, if it orders or
calculates with an object of such a class which a function gave it, or if it runs a text of the agent's code. Files that
a test writes are not in the other sandbox. The agent's functions run in a thread, so they can set no signal handlers.
"""

import binascii
import functools
import importlib.util
import json
import marshal
import zlib
from collections.abc import Mapping, Sequence
from importlib.resources import files as package_files
from typing import Any, NamedTuple

from agentrl.envs.code_repair.judge import Verdict
from agentrl.envs.code_repair.peer import FILE, MOST_TEXT
from agentrl.tool import CodeResult, CodeRunner, CodeSession, without_infra_error

PACKAGE = "agentrl.envs.code_repair"
SENT = (  # modules that the sandboxes get, in the order of their imports
    "crossing", "twins", "special", "iterators", "references", "standin", "program", "operations", "peer",
)  # fmt: skip
MOST_MESSAGES = 100_000  # largest number of messages of one test program
SHOWN = 5  # largest number of failures that a verdict names
START = """
def _start(guarded, module):
    import binascii, marshal, sys, types, zlib
    import _frozen_importlib_external as external
    same = external.MAGIC_NUMBER == MAGIC
    for name, source, compiled in marshal.loads(zlib.decompress(binascii.a2b_base64(MODULES))):
        made = sys.modules[name] = types.ModuleType(name)
        exec(marshal.loads(compiled) if same else compile(source, name, "exec"), vars(made))
    peer = made.Peer(guarded)
    peer.start()
    if module:
        sys.path.insert(0, "")
        sys.dont_write_bytecode = True
        peer.module = __import__(module, fromlist=["*"])
    return peer
"""


class Program(NamedTuple):
    """What test programs may use.

    Args:
        module: the agent's module.
        names: functions, classes and constants of the module that the test programs use.
        context: trusted code with further names, such as the prompt of the task with its helpers.
        optional: names of `context` that the agent's module may replace, such as classes.
        classes: trusted code; its enumerations, dataclasses and named tuples without methods pass as values and are
            compared as this code defines them.
    """

    module: str
    names: Sequence[str]
    context: str = ""
    optional: Sequence[str] = ()
    classes: str = ""


class Outcome(NamedTuple):
    """Whether a test program passed, why it did not, and whether that is because a value could not pass."""

    passed: bool
    why: str = ""
    refused: bool = False


def check_program(
    runner: CodeRunner,
    files: Mapping[str, str],
    program: Program,
    tests: Sequence[str],
    timeout_s: float,
    shown: int = 0,
) -> Verdict:
    """Run test programs, each of which counts as one check.

    Args:
        runner: opens the sandboxes.
        files: the agent's code by path.
        program: the agent's module and what the test programs use of it.
        tests: the test programs.
        timeout_s: largest number of seconds of one test program.
        shown: number of test programs, the first ones, that the agent was shown.

    Raises:
        ToolFault: a sandbox failed.
    """
    ends = _Ends(runner, files, program)
    try:
        outcomes = [ends.run(test, timeout_s) for test in tests]
    finally:
        ends.close()
    failures = dict.fromkeys(outcome.why for outcome in outcomes if not outcome.passed)
    refused = sum(outcome.refused for outcome in outcomes)
    passed = [outcome.passed for outcome in outcomes]
    return Verdict(sum(passed), len(tests), passed[shown:], tuple(failures)[:SHOWN], refused)


@functools.cache
def _start() -> str:
    """The code that makes an end: START, and the modules of SENT as sources and as compiled code."""
    found = []
    for short in SENT:
        name = f"{PACKAGE}.{short}"
        source = package_files(PACKAGE).joinpath(f"{short}.py").read_text("utf-8")
        found.append((name, source, marshal.dumps(compile(source, name, "exec", optimize=2))))
    packed = binascii.b2a_base64(zlib.compress(marshal.dumps(found, 2)), newline=False)
    return f"MAGIC, MODULES = {importlib.util.MAGIC_NUMBER!r}, {packed!r}\n{START}\n_peer = _start"


class _Ends:
    """The two sandboxes. They are opened on first use, and again after a test program that did not end in time."""

    def __init__(self, runner: CodeRunner, files: Mapping[str, str], program: Program) -> None:
        self._runner, self._files, self._program = runner, files, program
        self._tests: CodeSession | None = None
        self._code: CodeSession | None = None
        self._broken = ""  # why the agent's module cannot be imported

    def close(self) -> None:
        """End both sandboxes."""
        for session in (self._tests, self._code):
            if session is not None:
                session.close()
        self._tests = self._code = None

    def run(self, test: str, timeout_s: float) -> Outcome:
        """Run one test program."""
        if not self._broken and self._tests is None:
            self._open(timeout_s)
        if self._broken:
            return Outcome(False, self._broken)
        assert self._tests is not None and self._code is not None
        fields = {**self._program._asdict(), "source": test}
        text, begin, left, other = json.dumps(fields), True, timeout_s, "test"
        for turn in range(MOST_MESSAGES):
            session, other = (self._tests, "test") if turn % 2 == 0 else (self._code, "agent's code")
            result = self._step(session, text, begin, left)
            begin, left = False, left - result.wall_s
            kind, text = _message(result)
            if not kind or left <= 0:
                self.close()
                return Outcome(False, _why(result, other) if result.error_name or not kind else _late(timeout_s))
            if kind == "V" and turn % 2 == 0:
                verdict: dict[str, Any] = json.loads(text)
                why = "; ".join([verdict["why"], *verdict["notes"]])
                return Outcome(verdict["passed"], _with_hint(why), verdict["refused"])
        self.close()
        return Outcome(False, f"the test program needs more than {MOST_MESSAGES} messages")

    def _open(self, timeout_s: float) -> None:
        self._tests, self._code = self._runner.session({}), self._runner.session(self._files)
        for session, module in ((self._code, self._program.module), (self._tests, "")):
            result = without_infra_error(session.run(f"{_start()}({not module}, {module!r})", timeout_s))
            if not result.ok:
                said = f"{result.error_name}: {result.error_value}" if result.error_name else _why(result, "import")
                self._broken = f"{self._program.module} cannot be imported: {_with_hint(said)}"
                return

    @staticmethod
    def _step(session: CodeSession, text: str, begin: bool, timeout_s: float) -> CodeResult:
        code = f"_peer.step({text!r}, {begin})"
        return without_infra_error(session.run(code, timeout_s, fetch=[FILE]))


def _message(result: CodeResult) -> tuple[str, str]:
    """Kind and text of what an end left; the kind is empty if there is nothing, or too much."""
    data = result.artifacts.get(FILE, b"") if result.ok else b""
    if not data or len(data) > MOST_TEXT + 1:
        return "", ""
    text = data.decode("ascii", "replace")
    return text[0], text[1:]


def _with_hint(why: str) -> str:
    """What to do about a missing package."""
    return f"{why}; name its package in env.sandbox.packages" if "ModuleNotFoundError" in why else why


def _late(timeout_s: float) -> str:
    return f"the test program did not end in {timeout_s:g} s"


def _why(result: CodeResult, end: str) -> str:
    """Why a run left no message."""
    if result.timed_out:
        return f"the {end} did not end in time"
    said = f"{result.error_name}: {result.error_value}".strip(": ")
    return f"the {end} ended its process or left no message ({said or f'exit code {result.exit_code}'})"[:300]
