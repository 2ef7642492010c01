"""Running code that a model wrote: what a sandbox answers, and what a sandbox is.

A catalogue file in `tools/` that can run code offers, besides `Config` and `make`, `runner(config) -> CodeRunner`.
An environment names one in its configuration and gets it through `open_runner`, so that a local sandbox, a remote
one and a test's double are exchanged without touching the environment.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from agentrl.config import resolve
from agentrl.tool.protocol import ToolFault, ToolFile


@dataclass(frozen=True, kw_only=True)
class CodeResult:
    """What one execution gave. Everything here was produced by untrusted code: never a reason to reward it.

    Attributes:
        stdout: what it printed, capped.
        stderr: what it wrote there, capped.
        result_text: the value of the last expression, if the session echoes it; else empty.
        error_name: the exception's type, such as ZeroDivisionError; empty if there was none.
        error_value: the exception's message.
        traceback: the formatted traceback, the sandbox's own frames left out.
        timed_out: it was stopped because its time was up.
        exit_code: 0, 1 for an exception, what it passed to `sys.exit`, or minus the signal that killed it; None if
            it was stopped.
        wall_s: seconds it took.
        infra_error: why the sandbox itself failed; empty if it did not. Nobody's doing: see `fault`.
        artifacts: the files asked for, and what a remote kernel displays, by name.
        backend: which sandbox ran it.
    """

    stdout: str = ""
    stderr: str = ""
    result_text: str = ""
    error_name: str = ""
    error_value: str = ""
    traceback: str = ""
    timed_out: bool = False
    exit_code: int | None = 0
    wall_s: float = 0.0
    infra_error: str = ""
    artifacts: Mapping[str, bytes] = field(default_factory=dict)
    backend: str = ""

    @property
    def ok(self) -> bool:
        """It ran to its end without an exception."""
        return not (self.error_name or self.timed_out or self.infra_error or self.exit_code)


@runtime_checkable
class CodeSession(Protocol):
    """A place to run code. Stateful ones keep variables from one `run` to the next, stateless ones start afresh."""

    backend: str

    def run(
        self, code: str, timeout_s: float | None = None, *, stdin: str = "", fetch: Sequence[str] = ()
    ) -> CodeResult:
        """Run some Python.

        Args:
            code: the program, or the cell.
            timeout_s: seconds; None takes the session's own.
            stdin: what it may read as its input.
            fetch: files to bring back as `artifacts`, relative to the working folder; absent ones are left out.

        Returns:
            The result; whatever the code does, and a lost sandbox too, is a result and no exception.
        """
        ...

    def close(self) -> None:
        """End every process of the session and remove its files; closing twice is allowed."""
        ...


@runtime_checkable
class CodeRunner(Protocol):
    """Opens sessions of one kind."""

    backend: str

    def session(self, files: Mapping[str, str | bytes] | None = None, *, stateful: bool = True) -> CodeSession:
        """A new session, cheap until its first run.

        Args:
            files: what lies in the working folder at the start, by relative path.
            stateful: keep variables and files from one run to the next.
        """
        ...


def open_runner(section: Mapping[str, Any], where: str = "sandbox") -> CodeRunner:
    """The sandbox a configuration names.

    Args:
        section: `name` (a file of `tools/`, an entry point or a dotted path) and its options.
        where: the section's name in error sentences.

    Raises:
        ValueError: no such tool, one that cannot run code, or no sandbox that holds on this machine.
    """
    entry = resolve(ToolFile, section, where)
    if entry.hooks.runner is None:
        raise ValueError(f"{where}.name = {entry.name!r} runs no code: take python_sandbox, e2b or sandbox_fusion")
    runner: CodeRunner = entry.hooks.runner(entry.config)
    return runner


def shared_runner(section: Mapping[str, Any], where: str = "sandbox") -> CodeRunner:
    """The sandbox a configuration names, opened once per process; see `open_runner`."""
    return _opened(json.dumps(section, sort_keys=True), where)


@functools.cache
def _opened(section: str, where: str) -> CodeRunner:
    return open_runner(json.loads(section), where)


def runner_facts(runner: CodeRunner) -> dict[str, str]:
    """What a report says of a sandbox: its name, and the limits that it does not hold strictly, if there are any."""
    unheld = "; ".join(getattr(runner, "unheld", ()))
    return {"sandbox": runner.backend, **({"sandbox_limits_not_held": unheld} if unheld else {})}


def without_infra_error(result: CodeResult) -> CodeResult:
    """The result, unless the sandbox itself failed: then ToolFault, so that the episode is retried and never scored."""
    if result.infra_error:
        raise ToolFault(f"the {result.backend} sandbox failed: {result.infra_error}")
    return result
