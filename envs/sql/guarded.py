"""Runs queries of an agent in a process of their own (`runner`).

The queries can only read. They end after a time, and their memory is limited.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentrl.tool import ToolFault

RUNNER = Path(__file__).with_name("runner.py")
MOST_IDLE = 8  # largest number of idle processes that are kept for later queries
Cell = int | float | str | bytes | None


class Limits(NamedTuple):
    """What one query may take.

    Attributes:
        steps: largest number of instructions of SQLite's virtual machine.
        seconds: wall-clock seconds after which the process is killed.
        rows: largest number of rows of a result.
        memory: largest size of SQLite's heap, in bytes.
        longest: largest size of one text or blob, in bytes.
    """

    steps: int = 5_000_000
    seconds: float = 10.0
    rows: int = 10_000
    memory: int = 128 << 20
    longest: int = 1_000_000


class Source(NamedTuple):
    """A database: its name, and the script that makes it or the file that holds it."""

    name: str
    script: str = ""
    file: str = ""


class Result(NamedTuple):
    """Columns and rows of a query; or its error, and then no columns and no rows."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    error: str = ""


class _Died(Exception):
    """The process ended before it replied."""


class _Process:
    """One process that runs queries, used by one thread at a time."""

    def __init__(self, memory: int) -> None:
        self.memory, self.owner = memory, os.getpid()
        command = [sys.executable, "-I", "-S", str(RUNNER), str(memory)]
        try:
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}
            )
        except OSError as error:
            raise ToolFault(f"the process that runs queries could not be started: {error}") from error
        self._rest = b""

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The reply to a request.

        Raises:
            TimeoutError: there was no reply within `seconds`.
            _Died: the process ended before it replied.
        """
        assert self._child.stdin is not None and self._child.stdout is not None
        until = time.monotonic() + seconds
        try:
            self._child.stdin.write(json.dumps(request).encode() + b"\n")
            self._child.stdin.flush()
        except (BrokenPipeError, OSError):
            raise _Died from None
        parts = [self._rest]
        while b"\n" not in parts[-1]:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._child.stdout], [], [], left)[0]:
                raise TimeoutError
            part = os.read(self._child.stdout.fileno(), 1 << 16)
            if not part:
                raise _Died
            parts.append(part)
        line, _, self._rest = b"".join(parts).partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def end(self) -> None:
        """Kill the process."""
        self._child.kill()
        self._child.communicate()


_idle: list[_Process] = []
_lending = threading.Lock()


@contextlib.contextmanager
def _lent(memory: int) -> Iterator[_Process]:
    """A process for one query; if the block raises, the process is killed."""
    with _lending:
        # After a fork the processes belong to the parent.
        usable = [one for one in _idle if one.owner == os.getpid() and one.memory == memory]
        process = usable[-1] if usable else None
        if process is not None:
            _idle.remove(process)
    process = process or _Process(memory)
    try:
        yield process
    except BaseException:
        process.end()
        raise
    with _lending:
        if len([one for one in _idle if one.owner == os.getpid()]) < MOST_IDLE:
            _idle.append(process)
            return
    process.end()


def run_query(source: Source, sql: str, limits: Limits) -> Result:
    """Run one query against a database.

    Args:
        source: the database.
        sql: what the agent wrote.
        limits: see `Limits`.

    Raises:
        ToolFault: the database cannot be opened, or the process cannot be started; the query is not the cause.
    """
    if "\0" in sql:
        return Result(error="a query has no zero byte")
    request = {
        "database": source.name,
        "sql": sql.encode("utf-8", "replace").decode(),
        "steps": limits.steps,
        "rows": limits.rows,
        "memory": limits.memory,
        "bytes": limits.longest,
    }
    for attempt in range(2):
        try:
            with _lent(limits.memory) as process:
                reply = process.ask(request, limits.seconds)
                if reply.get("unknown"):
                    whole = {**request, "script": source.script, "file": source.file}
                    reply = process.ask(whole, limits.seconds)
        except TimeoutError:
            return Result(error=f"the query took more than {limits.seconds:g} seconds: write a smaller one")
        except _Died:
            if attempt:
                return Result(error="the query ended the process that ran it: write a smaller one")
            continue
        if "broken" in reply:
            raise ToolFault(f"database {source.file or source.name} cannot be opened: {reply['broken']}")
        return _result(reply)
    raise AssertionError("two attempts end in a result")


def _result(reply: Mapping[str, Any]) -> Result:
    if "error" in reply:
        return Result(error=str(reply["error"]))
    rows = tuple(
        tuple(bytes.fromhex(cell["blob"]) if isinstance(cell, dict) else cell for cell in row) for row in reply["rows"]
    )
    return Result(tuple(reply["columns"]), rows)
