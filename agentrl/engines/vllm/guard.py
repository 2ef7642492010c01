"""Runs one command for agentrl, and ends the command with all its descendants when agentrl is gone.

`python server_guard.py` reads one line of JSON, `{"command": [...], "environment": {...}, "remove": [...]}`, from
standard input, starts the command, and waits. The guard ends the command and every process that descends from it, also
in another process session, as soon as one of these happens: another line arrives, standard input ends (agentrl is gone,
for any reason), the guard gets SIGTERM, or the command ends by itself. If agentrl is gone, the guard also removes the
folders in `remove`. The guard's exit code is that of the command.

The guard is a separate program that runs without site packages, so it is small and needs no installed package.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

PATIENCE_S = 8.0  # seconds for the command to end after SIGTERM, and then for its descendants to end after SIGKILL
LOOK_S = 0.2  # seconds between two looks at the command
SUBREAPER, DEATH_SIGNAL = 36, 1  # options of prctl(2)


def main() -> int:
    """See the module."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for agentrl, which then closes standard input
    wanted: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, frame: wanted.append(signum))
    asked = json.loads(_line())
    _prctl(SUBREAPER, 1)  # orphans of the command become children of the guard, which can then end them
    process = subprocess.Popen(
        asked["command"],
        env=asked["environment"],
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: _prctl(DEATH_SIGNAL, int(signal.SIGKILL)),
    )
    try:
        said: bytes | None = None
        while process.poll() is None and not wanted and said is None:
            said = _said()
    finally:
        code = _end(process)
    if said == b"":
        for folder in asked["remove"]:
            shutil.rmtree(folder, ignore_errors=True)
    return code


def _line() -> bytes:
    """The first line of standard input. No byte more is read, so that `select` sees the bytes after the line."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line


def _said() -> "bytes | None":
    """The bytes from standard input, empty at its end; None if nothing came for LOOK_S seconds."""
    ready, _, _ = select.select([0], [], [], LOOK_S)
    return os.read(0, 4096) if ready else None


def _end(process: "subprocess.Popen[bytes]") -> int:
    """End the command and all its descendants; returns the exit code of the command."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
    code = process.wait()
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        for child in _children(os.getpid()):
            for one in (*_below(child), child):
                with contextlib.suppress(OSError):
                    os.kill(one, signal.SIGKILL)
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if not ended:
            time.sleep(0.02)
    return code


def _below(process: int) -> "list[int]":
    """Every process that descends from `process`."""
    children = _children(process)
    return [*children, *(one for child in children for one in _below(child))]


def _children(process: int) -> "list[int]":
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    except OSError:  # the process has ended, or this is no Linux
        pass
    return found


def _prctl(option: int, value: int) -> None:
    """Set an option of this process; systems other than Linux have no such call."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
