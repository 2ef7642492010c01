"""Where environments run: in this process (light ones), or in pinned worker processes (heavy ones).

Both answer through `Handle`s: one environment instance playing one episode at a time. A call that raises, hangs or
returns something that is not an observation becomes `EnvFault`, which costs that episode only.
"""

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from agentrl.env import Env, Move
from agentrl.types import Observation, StepResult, Task


class EnvFault(Exception):
    """The environment failed; the message says how. Not the agent's doing."""


class Handle(Protocol):
    """One environment instance. All calls may raise EnvFault; after one the handle must be discarded."""

    async def reset(self, task: Task) -> Observation:
        """Start a task."""
        ...

    async def step(self, action: str) -> StepResult:
        """Carry out an action."""
        ...

    async def act(self, expert: str, seed: int) -> Move:
        """What the named expert would do now, its own randomness seeded by `seed` and the task."""
        ...


class Pool(Protocol):
    """Lends handles."""

    def acquire(self) -> Handle:
        """An idle instance, or a new one."""
        ...

    def release(self, handle: Handle, *, broken: bool) -> None:
        """Take it back; a broken one is thrown away."""
        ...

    def close(self) -> None:
        """Close every instance and end the workers."""
        ...


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise EnvFault inside the block after `seconds`, where the platform can: main thread, POSIX.

    Limit: it interrupts Python code and system calls, not a loop inside a C extension; worker processes cover those.
    """
    usable = seconds < math.inf and threading.current_thread() is threading.main_thread()
    if not usable or not hasattr(signal, "setitimer"):
        yield
        return

    def expire(signum: int, frame: object) -> None:
        raise EnvFault(f"no answer in {seconds:g} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def checked_observation(value: object) -> Observation:
    """The value if it is an observation, else EnvFault."""
    if not isinstance(value, Observation) or not isinstance(value.text, str):
        raise EnvFault(f"reset returned {type(value).__name__}, not an Observation")
    return value


def checked_result(value: object) -> StepResult:
    """A step result with terminated winning over truncated, else EnvFault."""
    try:
        observation, reward, terminated, truncated, info = value  # type: ignore[misc]
        number = float(reward)  # type: ignore[has-type]
    except (TypeError, ValueError):
        raise EnvFault(f"step returned {value!r:.80}, not observation, reward, terminated, truncated, info") from None
    checked_observation(observation)
    if not math.isfinite(number):
        raise EnvFault(f"step returned reward {number}")
    if not isinstance(info, dict):
        raise EnvFault(f"step returned info of type {type(info).__name__}, not dict")
    return StepResult(observation, number, bool(terminated), bool(truncated) and not terminated, info)


class Slot:
    """One environment instance and its expert, called synchronously with every fault turned into EnvFault."""

    def __init__(self, make: Callable[[], Env], expert: Callable[[Env, str, int], Any] | None, timeout_s: float) -> None:
        self._make, self._make_expert, self._timeout_s = make, expert, timeout_s
        self._env: Env | None = None
        self._expert: Any = None
        self._task: Task | None = None
        self._last: Observation | None = None

    def reset(self, task: Task) -> Observation:
        """Make the instance if need be and start the task."""
        self._task, self._expert = task, None
        self._last = checked_observation(self._guard(lambda: self._instance().reset(task)))
        return self._last

    def step(self, action: str) -> StepResult:
        """Carry out an action."""
        result = checked_result(self._guard(lambda: self._instance().step(action)))
        self._last = result.observation
        return result

    def act(self, name: str, seed: int) -> Move:
        """Ask the expert, made on its first move of the episode."""
        if self._make_expert is None:
            raise ValueError("this environment has no expert: its file has no expert(env, name, seed)")
        if self._expert is None:
            self._expert = self._make_expert(self._instance(), name, seed)
            self._expert.reset(self._task)
        move: Move = self._guard(lambda: self._expert.act(self._last))
        return move

    def close(self) -> None:
        """Close the instance; a fault while closing is no longer anybody's concern."""
        if self._env is not None:
            try:
                self._guard(self._env.close)
            except EnvFault:
                pass
            self._env = None

    def _instance(self) -> Env:
        if self._env is None:
            self._env = self._make()
        return self._env

    def _guard(self, call: Callable[[], Any]) -> Any:
        try:
            with deadline(self._timeout_s):
                return call()
        except EnvFault:
            raise
        except Exception as error:  # noqa: BLE001  an environment may raise anything; it must cost one episode only
            raise EnvFault(f"{type(error).__name__}: {error}") from error


class InlineHandle:
    """A slot in this process."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot

    async def reset(self, task: Task) -> Observation:
        """See Handle."""
        return self.slot.reset(task)

    async def step(self, action: str) -> StepResult:
        """See Handle."""
        return self.slot.step(action)

    async def act(self, expert: str, seed: int) -> Move:
        """See Handle."""
        return self.slot.act(expert, seed)


class InlinePool:
    """Instances in this process, reused between episodes."""

    def __init__(
        self, make: Callable[[], Env], expert: Callable[[Env, str, int], Any] | None = None, timeout_s: float = 60.0
    ) -> None:
        """timeout_s: seconds one call may take."""
        self._make, self._expert, self._timeout_s = make, expert, timeout_s
        self._idle: list[InlineHandle] = []

    def acquire(self) -> InlineHandle:
        """See Pool."""
        return self._idle.pop() if self._idle else InlineHandle(Slot(self._make, self._expert, self._timeout_s))

    def release(self, handle: InlineHandle, *, broken: bool) -> None:
        """See Pool."""
        if broken:
            handle.slot.close()
        else:
            self._idle.append(handle)

    def close(self) -> None:
        """See Pool."""
        for handle in self._idle:
            handle.slot.close()
        self._idle.clear()
