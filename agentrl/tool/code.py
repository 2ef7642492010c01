"""Runs code that a model wrote: the protocol of a sandbox, and its results.

A catalogue file in `tools/` that can run code offers, besides `Config` and `make`, `runner(config) -> CodeRunner`.
An environment names such a tool in its configuration, and opens the tool's sandbox with `open_runner`. So a user can
replace a local sandbox by a remote sandbox or a test double without a change to the environment.
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
    """The result of one execution. Untrusted code can forge every field, so do not base a reward on one field alone.

    Attributes:
        stdout: the text that the code wrote to standard output, up to the sandbox's limit.
        stderr: the text that the code wrote to standard error, up to the sandbox's limit.
        result_text: the value of the last expression as text, if the session echoes it; else empty.
        error_name: the exception's type, such as ZeroDivisionError; empty if there was none.
        error_value: the exception's message; empty if there was none.
        traceback: the formatted traceback without the sandbox's own frames; empty if there was no exception.
        timed_out: the code was stopped because its time was up.
        exit_code: 0 for success, 1 for an exception, the number that the code passed to `sys.exit`, or minus the number
            of the signal that killed the code; None if the sandbox stopped the code.
        wall_s: seconds that the execution took.
        infra_error: why the sandbox itself failed, which is not the agent's fault (see `without_infra_error`); empty if
            the sandbox did not fail.
        artifacts: name -> content, of the files that the caller asked for and of objects that a remote kernel displays.
        backend: name of the sandbox that ran the code.
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
        """Did the code run to its end without an exception, and with the exit code 0?"""
        return not (self.error_name or self.timed_out or self.infra_error or self.exit_code)


@runtime_checkable
class CodeSession(Protocol):
    """Runs code. A stateful session keeps variables from one `run` to the next; a stateless session does not."""

    backend: str

    def run(
        self, code: str, timeout_s: float | None = None, *, stdin: str = "", fetch: Sequence[str] = ()
    ) -> CodeResult:
        """Run Python code.

        Args:
            code: a program, or one cell of a stateful session.
            timeout_s: largest number of seconds; None takes the session's own limit.
            stdin: the standard input of the code.
            fetch: files to return as `artifacts`, relative to the working folder; missing files are left out.

        Returns:
            The result. Neither an error of the code nor a lost sandbox raises an exception.
        """
        ...

    def close(self) -> None:
        """End every process of the session and remove its files; closing twice is allowed."""
        ...


@runtime_checkable
class CodeRunner(Protocol):
    """A sandbox that opens sessions, in which code runs."""

    backend: str

    def session(self, files: Mapping[str, str | bytes] | None = None, *, stateful: bool = True) -> CodeSession:
        """A new session. It starts no process before its first run.

        Args:
            files: contents of the files that lie in the working folder at the start, by relative path.
            stateful: if True, the session keeps variables and files from one run to the next.
        """
        ...


def open_runner(section: Mapping[str, Any], where: str = "sandbox") -> CodeRunner:
    """The sandbox that a configuration names.

    Args:
        section: `name` (a file of `tools/`, an entry point or a dotted path) and the options of this tool.
        where: the section's name, for error messages.

    Raises:
        ValueError: the tool does not exist, cannot run code, or finds no safe sandbox on this machine.
    """
    entry = resolve(ToolFile, section, where)
    if entry.hooks.runner is None:
        raise ValueError(f"{where}.name = {entry.name!r} runs no code: choose python_sandbox, e2b or sandbox_fusion")
    runner: CodeRunner = entry.hooks.runner(entry.config)
    return runner


def shared_runner(section: Mapping[str, Any], where: str = "sandbox") -> CodeRunner:
    """The sandbox that a configuration names, opened once per process; see `open_runner`."""
    return _opened(json.dumps(section, sort_keys=True), where)


@functools.cache
def _opened(section: str, where: str) -> CodeRunner:
    return open_runner(json.loads(section), where)


def runner_facts(runner: CodeRunner) -> dict[str, str]:
    """Facts on a sandbox for a report: its name, and the limits that it does not enforce strictly, if there are any."""
    unheld = "; ".join(getattr(runner, "unheld", ()))
    return {"sandbox": runner.backend, **({"sandbox_limits_not_held": unheld} if unheld else {})}


def without_infra_error(result: CodeResult) -> CodeResult:
    """The result; ToolFault if the sandbox itself failed, so that the episode is played again and not scored."""
    if result.infra_error:
        raise ToolFault(f"the {result.backend} sandbox failed: {result.infra_error}")
    return result
