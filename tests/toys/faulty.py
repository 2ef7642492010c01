"""A corridor that fails on the steps its tasks name, in every way an environment can fail.

Task params: `fault` (a name in FAULTS, CRASHES or MUCH, or none; `close` strikes when the instance is closed), `at`
(the turn it strikes; -1: in reset), `marker` (a file; if given, the fault strikes only while the file does not exist,
so that a retry succeeds). Faults `second` and
`later` strike the second time, or every time after the first, that an episode of this process gets to turn `at`.
"""

import asyncio
import ctypes
import os
import signal
import stat
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentrl.types import Observation, StepResult, Task
from tests.toys import walk
from tests.toys.walk import Config, Walk, expert

__all__ = ["FAULTS", "Config", "expert", "make", "task", "tasks"]


def raise_(seen: Observation) -> Any:
    raise KeyError("lost")


def exit_(seen: Observation) -> Any:
    sys.exit(3)


def raises(error: BaseException) -> Any:
    raise error


def hang(seen: Observation) -> Any:
    while True:
        try:
            time.sleep(60)
        except Exception:  # noqa: BLE001  a careless environment that retries whatever happens
            continue


def hang_in_c(seen: Observation) -> Any:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})  # as deaf as a loop inside a C extension
    time.sleep(60)


def die(seen: Observation) -> Any:
    os._exit(7)


def killed(seen: Observation) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def result(seen: Observation, **changes: Any) -> Any:
    good = {"observation": seen, "reward": 0.0, "terminated": False, "truncated": False, "info": {}}
    return tuple({**good, **changes}.values())


def segfault(seen: Observation) -> Any:
    ctypes.string_at(0)


def close_all(seen: Observation) -> Any:
    os.closerange(3, 256)  # the channel to the pool among them
    return result(seen)


def leave_child(seen: Observation) -> Any:
    """End the process and leave a child, which holds the channel and every pipe of its parent open."""
    if os.fork() == 0:
        time.sleep(600)
    os._exit(7)


def write_to_channel(data: bytes) -> None:
    """As an environment that mistakes the channel for a file of its own."""
    for number in range(3, 64):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                os.write(number, data)


def half_answer(seen: Observation) -> Any:
    write_to_channel(struct.pack("!Q", 1000) + b"half")
    hang_in_c(seen)


def rubbish_answer(seen: Observation) -> Any:
    write_to_channel(struct.pack("!Q", 4) + b"\xff\xfe\x00\n")
    hang_in_c(seen)


def print_much(seen: Observation) -> Any:
    os.write(1, b"written\n" * 100_000)
    print("printed\n" * 10_000)
    print("told\n" * 10_000, file=sys.stderr)
    return result(seen)


LEAK: list[bytes] = []


def leak(seen: Observation, megabytes: int) -> Any:
    LEAK.append(b"x" * (megabytes << 20))
    return result(seen)


FAULTS: dict[str, Callable[[Observation], Any]] = {
    "raise": raise_,
    "exit": exit_,
    "interrupt": lambda seen: raises(KeyboardInterrupt("x")),
    "generator_exit": lambda seen: raises(GeneratorExit()),
    "cancelled": lambda seen: raises(asyncio.CancelledError()),
    "base": lambda seen: raises(BaseException("odd")),
    "hang": hang,
    "hang_in_c": hang_in_c,
    "die": die,
    "killed": killed,
    "none": lambda seen: None,
    "text": lambda seen: "abcde",
    "three": lambda seen: (seen, 0.0, False),
    "nan": lambda seen: result(seen, reward=float("nan")),
    "reward_text": lambda seen: result(seen, reward="1"),
    "reward_huge": lambda seen: result(seen, reward=10**400),
    "info_huge": lambda seen: result(seen, info={"all": bytes(257 << 20)}),
    "flag": lambda seen: result(seen, terminated="no"),
    "info": lambda seen: result(seen, info=None),
    "info_keys": lambda seen: result(seen, info={1: 2}),
    "status": lambda seen: result(seen, info={"status": 99}),
    "not_words": lambda seen: result(seen, observation="words"),
    "truncates": lambda seen: result(seen, truncated=True),  # no fault: a limit of the environment's own
    "unpicklable": lambda seen: result(seen, info={"open": lambda: 0}),
    "surrogate": lambda seen: result(seen, observation=Observation(text="\ud800")),
    "actions": lambda seen: result(seen, observation=Observation(text="x", actions=[1])),  # type: ignore[arg-type]
}


AGAIN = ("second", "later")
reached: list[int] = []


# What strikes the whole process; each costs the episode that called it, in a worker process.
CRASHES: dict[str, Callable[[Observation], Any]] = {
    "segfault": segfault,
    "closes": close_all,
    "leaves_child": leave_child,
    "half_answer": half_answer,
    "rubbish_answer": rubbish_answer,
    "burst": lambda seen: leak(seen, 4000),
}
# What is much, or on the wrong channel, and is no fault.
MUCH: dict[str, Callable[[Observation], Any]] = {
    "prints": print_much,
    "text_huge": lambda seen: result(seen, observation=Observation(text="é" * 50_000_000, actions=seen.actions)),
    "actions_many": lambda seen: result(
        seen, observation=Observation(text=seen.text, actions=(*map(str, range(20_000)), *seen.actions))
    ),
    "leaks": lambda seen: leak(seen, 100),
}


class Faulty(Walk):
    def reset(self, task: Task) -> Observation:
        self.params: dict[str, Any] = dict(task.params)
        seen = super().reset(task)
        return self.fail(seen) if self.due(-1) else seen

    def step(self, action: str) -> StepResult:
        if self.due(self.steps):
            return self.fail(self.observe())
        return super().step(action)

    def due(self, turn: int) -> bool:
        if self.params.get("fault") in AGAIN and turn == self.params["at"]:
            reached.append(turn)
            return len(reached) == 2 or (len(reached) > 2 and self.params["fault"] == "later")
        marker = self.params.get("marker")
        return self.params.get("at") == turn and not (marker and Path(marker).exists())

    def fail(self, seen: Observation) -> Any:
        if self.params.get("marker"):
            Path(self.params["marker"]).touch()
        if self.params["fault"] in AGAIN:
            raise KeyError(self.params["fault"])
        return {**FAULTS, **CRASHES, **MUCH}[self.params["fault"]](seen)

    def close(self) -> None:
        if self.params.get("fault") == "close":
            hang_in_c(Observation(text=""))


def make(config: Config) -> Faulty:
    return Faulty(config)


def make_slowly(seconds: float, config: Config) -> Faulty:
    """An environment that reads much before it can play; less than no time: it hangs outside Python."""
    if seconds < 0:
        hang_in_c(Observation(text=""))
    time.sleep(seconds)
    return Faulty(config)


def task(number: int, fault: str = "", at: int = 1, marker: str = "") -> Task:
    params = {"fault": fault, "at": at, "marker": marker} if fault else {}
    return Task(key=f"faulty/{number}", env="tests.toys.faulty", seed=number, params=params)


def tasks(config: Config) -> Sequence[Task]:
    return [task(i) for i in range(config.count)]


kind = walk.kind


def never_serves(*arguments: Any) -> None:
    """A worker process that hangs before it reads a call."""
    hang_in_c(Observation(text=""))
