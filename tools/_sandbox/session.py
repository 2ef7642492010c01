"""Sessions of the local sandbox: one interpreter kept from cell to cell, or a fresh one for each program."""

import binascii
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from agentrl.tool import CodeResult
from agentrl.tools._sandbox.launch import Limits, plan
from agentrl.tools._sandbox.process import Answer, Lost, Process, Stopped

GRACE_S = 0.5  # seconds from the interpreter's own timer, which ends the cell alone, to the end of the sandbox
MIB = 1 << 20
REASONS = {
    "memory": "MemoryLimit",
    "disk": "DiskLimit",
    "descriptors": "DescriptorLimit",
    "processes": "ProcessLimit",
    "flood": "ReplyFlood",
    "exit": "InterpreterExit",
}


def checked_files(files: Mapping[str, str | bytes] | None) -> dict[str, bytes]:
    """The files as bytes; ValueError for a path that leaves the working folder."""
    found = {}
    for path, content in (files or {}).items():
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts or "\0" in path:
            raise ValueError(f"{path!r} is no path below the working folder: give relative paths without '..'")
        found[path] = content.encode("utf-8", "replace") if isinstance(content, str) else bytes(content)
    return found


class LocalSession:
    """A `CodeSession` on this machine."""

    def __init__(
        self,
        backend: str,
        limits: Limits,
        *,
        python: str = "",
        packages: Sequence[str] = (),
        hide: Sequence[str] = (),
        timeout_s: float = 10.0,
        echo: bool = True,
        stateful: bool = True,
        files: Mapping[str, str | bytes] | None = None,
    ) -> None:
        """See `python_sandbox.Config`; files: see `CodeRunner.session`."""
        self._process: Process | None = None
        self.backend, self.stateful = backend, stateful
        self._limits, self._python, self._packages = limits, python, tuple(packages)
        self._hide = tuple(hide)
        self._timeout_s, self._echo, self._files = timeout_s, echo, checked_files(files)

    def run(
        self, code: str, timeout_s: float | None = None, *, stdin: str = "", fetch: Sequence[str] = ()
    ) -> CodeResult:
        """See CodeSession."""
        seconds = self._timeout_s if timeout_s is None else timeout_s
        if not 0 < seconds < math.inf:
            raise ValueError(f"timeout_s = {seconds}: give a positive number of seconds")
        started = time.monotonic()
        try:
            result = self._run(code, seconds, stdin, tuple(fetch))
        except BaseException:
            self.close()  # interrupted in a cell: the next cell must not read the reply to this cell
            raise
        if not self.stateful:
            self.close()
        return replace(result, wall_s=time.monotonic() - started, backend=self.backend)

    def _run(self, code: str, seconds: float, stdin: str, fetch: tuple[str, ...]) -> CodeResult:
        command = {
            "code": code.encode("utf-8", "replace").decode(),
            "timeout": seconds,
            "stdin": stdin.encode("utf-8", "replace"),
            "fetch": fetch,
            "fetch_cap": self._limits.fetch_mb * MIB,
            "echo": self._echo,
            "cap": self._limits.output_kb * 1024,
        }
        try:
            answer = self._opened().ask(command, seconds + GRACE_S)
        except Lost as lost:
            self.close()
            return CodeResult(exit_code=None, infra_error=str(lost))
        except Stopped as stopped:
            self.close()
            return self._ended(stopped, seconds)
        return self._answered(answer, seconds, fetch)

    def _opened(self) -> Process:
        if self._process is None:
            try:
                start = plan(self.backend, self._limits, self._python, self._packages, self._hide)
                self._process = Process(start, self._limits, self._files)
            except (OSError, ValueError) as error:
                raise Lost(str(error)) from None
        return self._process

    def _ended(self, stopped: Stopped, seconds: float) -> CodeResult:
        """The result of a cell that ended the interpreter."""
        late = stopped.reason == "timeout"
        again = " The next cell starts a new interpreter: variables and files are lost." if self.stateful else ""
        words = stopped.words or f"the interpreter ended with exit code {stopped.exit_code}"
        return CodeResult(
            stdout=stopped.stdout,
            stderr=stopped.stderr,
            error_name="" if late else REASONS[stopped.reason],
            error_value=(f"stopped after {seconds:g} s." if late else f"{words}.") + again,
            timed_out=late,
            exit_code=stopped.exit_code,
        )

    def _answered(self, answer: Answer, seconds: float, fetch: tuple[str, ...]) -> CodeResult:
        """A reply as a result. Its fields may be forged, so each is checked for its type and capped."""
        fields, cap = answer.fields, self._limits.output_kb * 1024
        late = fields.get("late") is True
        code = fields.get("exit")
        return CodeResult(
            stdout=answer.stdout,
            stderr=answer.stderr,
            result_text=_text(fields.get("text"), cap),
            error_name=_text(fields.get("error"), 200),
            error_value=f"stopped after {seconds:g} s." if late else _text(fields.get("value"), cap),
            traceback=_text(fields.get("traceback"), cap),
            timed_out=late,
            exit_code=code if isinstance(code, int) and not late else None,
            artifacts=_artifacts(fields.get("files"), fetch, self._limits.fetch_mb * MIB),
        )

    def close(self) -> None:
        """See CodeSession."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def __enter__(self) -> "LocalSession":
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """A copy has the same settings and files, and an interpreter of its own."""
        return {**self.__dict__, "_process": None}


def _text(value: object, limit: int) -> str:
    if not isinstance(value, str):
        return ""
    return value[:limit].encode("utf-8", "replace").decode()


def _artifacts(value: object, asked: Sequence[str], limit: int) -> dict[str, bytes]:
    found = {}
    for path in asked if isinstance(value, dict) else ():
        data = value.get(path)  # type: ignore[attr-defined]
        if isinstance(data, str) and len(data) <= limit * 4 // 3 + 4:
            try:
                found[path] = binascii.a2b_base64(data)
            except (ValueError, binascii.Error):
                continue
    return found
