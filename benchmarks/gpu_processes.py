"""Processes with a time limit, for the run on a GPU: nothing that a process has started outlives it."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

ROOT = Path(__file__).parents[1]
GRACE_S = 8.0  # seconds that a process has to stop after an interrupt


class Ended(NamedTuple):
    """A process that has ended: its exit code, what it printed, its time, and whether it ended by itself."""

    code: int
    text: str
    seconds: float
    in_time: bool


def finished(command: Sequence[str], limit_s: float) -> Ended:
    """Run a command in the checkout. After `limit_s` seconds it is interrupted as by Ctrl-C, then killed."""
    start, in_time = time.monotonic(), True
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            in_time = False
            process.send_signal(signal.SIGINT)
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                end(process)
        output.seek(0)
        return Ended(process.returncode, output.read(), time.monotonic() - start, in_time)


def end(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it has started, in whatever session: torchrun's ranks have sessions of their own."""
    root = psutil.Process(process.pid)
    all_of_them = [*root.children(recursive=True), root]
    for one in all_of_them:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()
    psutil.wait_procs(all_of_them, timeout=2.0)  # the next part finds the GPU's memory free


def environment() -> dict[str, str]:
    """This process's variables, for processes in the checkout: modules are found from any folder, bytecode is kept."""
    found = {**os.environ, "PYTHONUNBUFFERED": "1"}
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    paths = [str(ROOT), *(os.path.abspath(x) for x in found.get("PYTHONPATH", "").split(os.pathsep) if x)]
    return {**found, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
