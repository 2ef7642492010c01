"""An environment that fails at a tenth of its steps, in every way that its place allows, and writes each failure down.

An episode takes LENGTH steps for any actions, and pays at least 1 at its end: a score below 1 is a failure that was
scored in silence. Before a fault strikes, a line with its name is appended to `journal`.
"""

import ctypes
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from agentrl.env import Env, Move
from agentrl.types import Observation, StepResult, Task

LENGTH = 4
ACTIONS = ("left", "right")
EXPERTS = ("expert",)
HANG_S = 20.0  # longer than any limit of the campaign; then the thread or process goes on


class Config(BaseModel, frozen=True, extra="forbid"):
    """share: share of steps that fail. place: where the environment runs, which decides how it may fail; `deaths` are
    worker processes that also die, hang outside Python and return values that cannot be pickled. journal: the file of
    the failures. seed: seed of the failures. first, count: number of the first task, and how many there are."""

    share: float = Field(0.1, ge=0, le=1)
    place: Literal["inline", "threads", "processes", "deaths"] = "inline"
    journal: str
    seed: int = 0
    first: int = 0
    count: int = 100_000


def raises(error: BaseException) -> Any:
    raise error


def changed(**changes: Any) -> Callable[[Observation], Any]:
    """A function that returns a step result with these parts in place of correct ones."""

    def garbage(seen: Observation) -> Any:
        good = {"observation": seen, "reward": 0.0, "terminated": False, "truncated": False, "info": {}}
        return tuple({**good, **changes}.values())

    return garbage


def hang(seen: Observation) -> Any:
    ends = time.monotonic() + HANG_S
    while time.monotonic() < ends:
        try:
            time.sleep(1)
        except Exception:  # noqa: BLE001  a careless environment that goes on whatever happens
            continue


def hang_outside_python(seen: Observation) -> Any:
    signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGALRM}
    )  # no signal interrupts it, as in a loop inside a C extension
    time.sleep(HANG_S)


GARBAGE: Mapping[str, Callable[[Observation], Any]] = {
    "nothing": lambda seen: None,
    "a text": lambda seen: "abcde",
    "three values": lambda seen: (seen, 0.0, False),
    "NaN": changed(reward=float("nan")),
    "reward 10^400": changed(reward=10**400),
    "reward a text": changed(reward="1"),
    "flag a text": changed(terminated="no"),
    "no info": changed(info=None),
    "unknown status": changed(info={"status": 99}),
    "success a text": changed(info={"success": "yes"}),
    "observation a text": changed(observation="words"),
    "half a surrogate pair": changed(observation=Observation(text="\ud800")),
    "actions numbers": changed(observation=Observation(text="x", actions=(1, 2))),  # type: ignore[arg-type]
}
RAISED: Mapping[str, Callable[[Observation], Any]] = {
    "KeyError": lambda seen: raises(KeyError("lost")),
    "SystemExit": lambda seen: sys.exit(3),
    "KeyboardInterrupt": lambda seen: raises(KeyboardInterrupt("odd")),
    "GeneratorExit": lambda seen: raises(GeneratorExit()),
    "MemoryError": lambda seen: raises(MemoryError()),
    "RecursionError": lambda seen: raises(RecursionError("deep")),
}
FATAL: Mapping[str, Callable[[Observation], Any]] = {
    "exit of the process": lambda seen: os._exit(7),
    "SIGKILL": lambda seen: os.kill(os.getpid(), signal.SIGKILL),
    "segmentation fault": lambda seen: ctypes.string_at(0),
    "hang outside Python": hang_outside_python,
    "what cannot be pickled": changed(info={"open": lambda: 0}),
}
FAULTS: Mapping[str, Mapping[str, Callable[[Observation], Any]]] = {
    "inline": {**GARBAGE, **RAISED},
    "threads": {**GARBAGE, **RAISED, "hang": hang},
    "processes": {**GARBAGE, **RAISED, "hang": hang},
    "deaths": {**GARBAGE, **RAISED, "hang": hang, **FATAL},
}
begun: Counter[int] = Counter()  # resets of each task in this process


class Faulty:
    """See the module."""

    def __init__(self, config: Config) -> None:
        self.config, self.left, self.rights = config, 0, 0
        self.rng = np.random.default_rng(0)

    def reset(self, task: Task) -> Observation:
        """Start counting down."""
        self.left, self.rights = LENGTH, 0
        # A new worker process has an empty `begun`. Without the size of the journal in the seed, it would fail at the
        # same steps as the process that it replaces.
        struck = os.path.getsize(self.config.journal) if self.config.place == "deaths" else 0
        self.rng = np.random.default_rng((self.config.seed, task.seed, begun[task.seed], struck))
        begun[task.seed] += 1
        return self.observe()

    def observe(self) -> Observation:
        """How many steps are left."""
        return Observation(text=f"{self.left} steps are left.", actions=ACTIONS)

    def step(self, action: str) -> StepResult:
        """One step less; or a fault."""
        if self.rng.random() < self.config.share:
            faults = FAULTS[self.config.place]
            name = list(faults)[int(self.rng.integers(len(faults)))]
            write_down(self.config.journal, name)
            return faults[name](self.observe())  # type: ignore[no-any-return]
        self.left -= 1
        self.rights += action == "right"
        over = self.left == 0
        return StepResult(
            self.observe(), (1.0 + self.rights / LENGTH) * over, over, False, {"success": self.rights > 1}
        )

    def close(self) -> None:
        """Nothing to release."""


def write_down(journal: str, name: str) -> None:
    """Append a line in one write, which survives the end of the process."""
    descriptor = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(descriptor, f"{name}\n".encode())
    finally:
        os.close(descriptor)


class Right:
    """Goes right."""

    def reset(self, task: Task) -> None:
        """Does nothing: there is no state."""

    def act(self, observation: Observation) -> Move:
        """Right."""
        return Move("right")


def expert(env: Env, name: str, seed: int) -> Right:
    """The only expert."""
    return Right()


def make(config: Config) -> Faulty:
    """An instance."""
    return Faulty(config)


def tasks(config: Config) -> Sequence[Task]:
    """Tasks that differ in their failures alone."""
    numbers = range(config.first, config.first + config.count)
    return [Task(key=f"faulty/{i}", env="benchmarks.reliability.faulty", seed=i) for i in numbers]
