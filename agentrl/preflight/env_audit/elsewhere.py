"""Random walks in another Python process, for comparisons: `python -m agentrl.preflight.env_audit.elsewhere`.

Standard input is JSON: `section` (the environment as a section of a recipe), `tasks` (the fields of each task), `steps`
and `seed`. Standard output is JSON: a list with the transcript of the walk through each task.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

import numpy as np

from agentrl.config import Entry, resolve
from agentrl.env import EnvironmentFile
from agentrl.foreign import GLOBAL_SEED, HASH_SEED
from agentrl.gym import Walk
from agentrl.types import Task

WAIT_S = 600.0  # seconds that one process may take


class Conditions(NamedTuple):
    """Under what a process plays; both hold in the Python of another package, too.

    Attributes:
        hash_seed: PYTHONHASHSEED.
        global_seed: seed of Python's and NumPy's global random generators; for another package, what is added to it.
    """

    hash_seed: int
    global_seed: int


def transcripts(
    entry: Entry[EnvironmentFile], tasks: Sequence[Task], *, steps: int, seed: int, under: Sequence[Conditions]
) -> list[list[list[str]]]:
    """The transcripts of one process per `under`, each with one transcript per task. The processes run at one time.

    Raises:
        ValueError: a process failed; the message is the last line that the process wrote.
    """
    listed = [{**asdict(task), "params": dict(task.params)} for task in tasks]
    order = json.dumps({"section": entry.dump(), "tasks": listed, "steps": steps, "seed": seed})
    path = os.pathsep.join(dict.fromkeys(place for place in sys.path if place))
    started = [
        subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": path,
                "PYTHONHASHSEED": str(one.hash_seed),
                HASH_SEED: str(one.hash_seed),
                GLOBAL_SEED: str(one.global_seed),
            },
        )
        for one in under
    ]
    try:
        return [_answer(process, order) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


def _answer(process: "subprocess.Popen[str]", order: str) -> list[list[str]]:
    try:
        out, errors = process.communicate(order, timeout=WAIT_S)
    except subprocess.TimeoutExpired:
        raise ValueError(f"another process had not played the same actions after {WAIT_S:g} s") from None
    if process.returncode:
        lines = [line for line in errors.splitlines() if line.strip()] or ["nothing"]
        raise ValueError(f"another process could not play the same actions; it wrote: {lines[-1][:300]}")
    found: list[list[str]] = json.loads(out)
    return found


def main() -> None:
    """See the module."""
    order = json.load(sys.stdin)
    out, sys.stdout = sys.stdout, sys.stderr  # what an environment prints must not get into the answer
    entry = resolve(EnvironmentFile, order["section"], "env")
    random.seed(int(os.environ[GLOBAL_SEED]))
    np.random.seed(int(os.environ[GLOBAL_SEED]))  # noqa: NPY002  the global generator is what is tested
    found = [Walk(entry, Task(**task), order["seed"], order["steps"]).run().transcript() for task in order["tasks"]]
    json.dump(found, out)


if __name__ == "__main__":
    main()
