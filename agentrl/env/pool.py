"""Where environments run: in this process (light ones), or in pinned worker processes (heavy ones).

Both answer through `Handle`s: one environment instance playing one episode at a time. A call that raises,
hangs or returns something that is not an observation becomes `EnvFault`, which costs that episode only.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NoReturn, Protocol

import numpy as np

from agentrl.env.protocol import Env, Judges, Move, Snapshots, Verdict
from agentrl.types import Action, Errand, Message, Observation, Rewrite, Status, StepResult, Task

STEP_STATUS = (Status.OK, Status.PARSE_ERROR, Status.TOOL_ERROR)  # what an environment may say of a step


START_S = 600.0  # making an instance may read its data; a call of it may not take that long


class EnvFault(Exception):
    """The environment failed; the message says how. Not the agent's doing."""


class Handle(Protocol):
    """One environment instance. All calls may raise EnvFault; after one the handle must be discarded."""

    async def reset(self, task: Task) -> Observation:
        """Start a task."""
        ...

    async def step(self, action: Action) -> StepResult:
        """Carry out an action, or go on with what called agents brought back."""
        ...

    async def act(self, expert: str, seed: int) -> Move:
        """What the named expert would do now, its own randomness seeded by `seed` and the task."""
        ...

    async def write(self, expert: str, seed: int, rewrite: Rewrite) -> Move:
        """What the named expert would remember."""
        ...

    async def cut(self) -> Verdict | None:
        """A limit ended the episode: what the environment says of it; None where it says nothing."""
        ...

    async def snapshot(self) -> Any:
        """The episode's state, picklable; None where the environment has no snapshots."""
        ...

    async def restore(self, task: Task, snapshot: Any) -> Observation | None:
        """Go back to a snapshot that any instance took of the task; None: there, but not told what it looks like."""
        ...


class Pool(Protocol):
    """Lends handles."""

    def acquire(self) -> Handle:
        """An idle instance, or a new one."""
        ...

    def release(self, handle: Any, *, broken: bool) -> None:
        """Take back a handle of this pool; a broken one is thrown away."""
        ...

    def close(self) -> None:
        """Close every instance and end the workers."""
        ...


class Expired(BaseException):
    """Time is up; not an Exception, so that an environment's own `except Exception` does not swallow it."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise EnvFault out of the block after `seconds`, where the platform can: main thread, POSIX.

    A timer of the caller's is put back afterwards with the time it has left.

    Limit: it interrupts Python code and system calls, not a loop inside a C extension; worker processes cover
        those.
    """
    usable = seconds < math.inf and threading.current_thread() is threading.main_thread()
    if not usable or not hasattr(signal, "setitimer"):
        yield
        return

    def expire(signum: int, frame: object) -> NoReturn:
        raise Expired

    handler = signal.signal(signal.SIGALRM, expire)
    started = time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again each second, should it be swallowed
    try:
        yield
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Expired:
        raise EnvFault(f"no answer in {seconds:g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, left - (time.monotonic() - started)), interval)


def checked_observation(value: object, call: str = "reset") -> Observation:
    """The value if it is an observation whose words a tokenizer takes, else EnvFault."""
    if not isinstance(value, Observation):
        raise EnvFault(f"{call} returned {type(value).__name__}, not an Observation")
    words = (value.text, value.state_key, value.task, *value.actions) if isinstance(value.actions, tuple) else (None,)
    if not all(isinstance(word, str) for word in words):
        raise EnvFault(f"{call} returned an observation whose text, state_key, task or actions are not texts")
    if not isinstance(value.messages, tuple) or not all(
        isinstance(m, Message) and all(isinstance(part, str) for part in m) for m in value.messages
    ):
        raise EnvFault(f"{call} returned an observation whose messages are no tuple of Message")
    try:
        "".join([*words, *(m.content for m in value.messages)]).encode()  # type: ignore[list-item]
    except UnicodeEncodeError:
        raise EnvFault(f"{call} returned an observation with half of a surrogate pair, which is not text") from None
    return value


def clipped(observation: Observation, chars: int | None) -> Observation:
    """The observation, its text and each message at most about `chars` characters long: head and tail kept."""
    if chars is None or max(len(observation.text), *(len(m.content) for m in observation.messages), 0) <= chars:
        return observation
    messages = tuple(m._replace(content=clip(m.content, chars)) for m in observation.messages)
    return replace(observation, text=clip(observation.text, chars), messages=messages)


def clip(text: str, chars: int) -> str:
    """The text, or its first and last characters, `chars` in all, and a mark that says what is missing."""
    left_out = len(text) - chars
    if left_out <= 0:
        return text
    head = (chars + 1) // 2
    return f"{text[:head]}\n... [{left_out} characters left out] ...\n{text[len(text) - (chars - head) :]}"


def checked_result(value: object) -> StepResult:
    """A step result with terminated winning over truncated and an `info` of its own, else EnvFault."""
    if not isinstance(value, tuple) or len(value) != 5:
        raise EnvFault(f"step returned {type(value).__name__}, not the 5 values of a StepResult")
    observation, reward, terminated, truncated, info = value
    checked_observation(observation, "step")
    if not all(isinstance(flag, bool | np.bool_) for flag in (terminated, truncated)):
        raise EnvFault("step returned terminated or truncated that is not a bool")
    over = bool(truncated) and not terminated
    return StepResult(observation, _checked_reward(reward), bool(terminated), over, _checked_info(info))


def _checked_reward(value: object) -> float:
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise EnvFault(f"step returned a reward of type {type(value).__name__} that is no number") from None
    if not math.isfinite(number):
        raise EnvFault(f"step returned reward {number}")
    return number


def _checked_info(info: object) -> dict[str, Any]:
    """A copy, since an environment may use one dict for all its steps."""
    if not isinstance(info, dict) or not all(isinstance(key, str) for key in info):
        raise EnvFault(f"step returned info of type {type(info).__name__}, not a dict with texts as keys")
    if not isinstance(info.get("success", False), bool | np.bool_):
        raise EnvFault(f"step returned info['success'] of type {type(info['success']).__name__}, not bool")
    signals = info.get("signals", {})
    if not isinstance(signals, Mapping) or not all(isinstance(name, str) for name in signals):
        raise EnvFault(f"step returned info['signals'] = {signals!r:.80}: it must be a dict of names and numbers")
    for name, value in signals.items():
        if not isinstance(value, int | float | np.bool_ | np.number) or not np.isfinite(value):
            raise EnvFault(f"step returned the signal {name!r} = {value!r:.60}, which is no finite number")
    if info.get("status", Status.OK) not in STEP_STATUS:
        raise EnvFault(f"step returned info['status'] = {info['status']!r}: it must be OK, PARSE_ERROR or TOOL_ERROR")
    errands = info.get("errands", ())
    if not isinstance(errands, tuple) or not all(isinstance(errand, Errand) for errand in errands):
        raise EnvFault(f"step returned info['errands'] of type {type(errands).__name__}: it must be a tuple of Errand")
    return dict(info)


class Slot:
    """One environment instance and its expert, called synchronously with every fault turned into EnvFault."""

    def __init__(
        self,
        make: Callable[[], Env],
        expert: Callable[[Env, str, int], Any] | None,
        timeout_s: float,
        start_s: float = START_S,
        output_chars: int | None = None,
    ) -> None:
        """timeout_s: seconds one call may take. start_s: seconds the making of the instance may take. output_chars:
        longest text of an observation, see `clipped`."""
        self._make, self._make_expert, self._timeout_s, self._start_s = make, expert, timeout_s, start_s
        self._chars = output_chars
        self._env: Env | None = None
        self._expert: Any = None
        self._task: Task | None = None
        self._last: Observation | None = None

    def prepare(self) -> None:
        """Make the instance, if there is none."""
        self._instance()

    def reset(self, task: Task) -> Observation:
        """Make the instance if need be and start the task."""
        self._task, self._expert = task, None
        env = self._instance()
        self._last = clipped(checked_observation(self._guard(lambda: env.reset(task))), self._chars)
        return self._last

    def step(self, action: Action) -> StepResult:
        """Carry out an action, or go on with what called agents brought back."""
        env = self._instance()
        result = checked_result(self._guard(lambda: _carry_out(env, action)))
        self._last = clipped(result.observation, self._chars)
        return result._replace(observation=self._last)

    def cut(self) -> Verdict | None:
        """What the environment says of an episode that a limit ended."""
        env = self._instance()
        if not isinstance(env, Judges):
            return None
        verdict = self._guard(env.cut)
        if not isinstance(verdict, tuple) or len(verdict) != 2:
            raise EnvFault(f"cut returned {type(verdict).__name__}, not a Verdict")
        return Verdict(_checked_reward(verdict[0]), _checked_info(verdict[1]))

    def act(self, name: str, seed: int) -> Move:
        """Ask the expert what to do."""
        player = self._player(name, seed)
        return _checked_move(self._guard(lambda: player.act(self._last)))

    def write(self, name: str, seed: int, rewrite: Rewrite) -> Move:
        """Ask the expert what to remember."""
        player = self._player(name, seed)
        if not hasattr(player, "write"):
            raise ValueError(
                f"expert {name!r} has no write(memory, text), so it cannot show how to keep a memory: choose another "
                "warmup.expert, or a context that rewrites nothing"
            )
        return _checked_move(self._guard(lambda: player.write(*rewrite)))

    def _player(self, name: str, seed: int) -> Any:
        """The expert, made on its first move of the episode."""
        if self._make_expert is None:
            raise ValueError("this environment has no expert: its file has no expert(env, name, seed)")
        if self._expert is None:
            self._expert = self._make_expert(self._instance(), name, seed)  # ValueError: no such expert
            self._guard(lambda: self._expert.reset(self._task))
        return self._expert

    def snapshot(self) -> Any:
        """The episode's state, or None."""
        env = self._instance()
        return self._guard(env.snapshot) if isinstance(env, Snapshots) else None

    def restore(self, task: Task, snapshot: Any) -> Observation | None:
        """Go back to a snapshot; an instance that last played another task is reset to this one first."""
        env = self._instance()
        assert isinstance(env, Snapshots)
        if self._task != task:
            self._guard(lambda: env.reset(task))  # type: ignore[attr-defined]
        self._task, self._expert = task, None
        seen = self._guard(lambda: env.restore(snapshot))
        if seen is not None:
            self._last = clipped(checked_observation(seen, "restore"), self._chars)
        return self._last if seen is not None else None

    def close(self) -> None:
        """Close the instance; a fault while closing is no longer anybody's concern."""
        if self._env is not None:
            with suppress(EnvFault):
                self._guard(self._env.close)
            self._env = None

    def _instance(self) -> Env:
        if self._env is None:
            self._env = self._guard(self._make, self._start_s)
        return self._env

    def _guard(self, call: Callable[[], Any], seconds: float | None = None) -> Any:
        try:
            with deadline(self._timeout_s if seconds is None else seconds):
                return call()
        except EnvFault:
            raise
        except (
            Exception,
            SystemExit,
        ) as error:  # an environment may raise anything; it must cost one episode only
            raise EnvFault(f"{type(error).__name__}: {error}") from error


def _checked_move(move: object) -> Move:
    if not isinstance(move, Move) or not isinstance(move.action, str):
        raise EnvFault(f"the expert returned {type(move).__name__}, not a Move")
    return move


def _carry_out(env: Env, action: Action) -> StepResult:
    if isinstance(action, str):
        return env.step(action)
    hear: Callable[[Any], StepResult] | None = getattr(env, "returned", None)  # agentrl.env.Delegates
    if hear is None:
        raise TypeError("it sends errands and has no method `returned(replies)` to hear what came of them")
    return hear(action)


class InlineHandle:
    """A slot in this process."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot

    async def reset(self, task: Task) -> Observation:
        """See Handle."""
        return self.slot.reset(task)

    async def step(self, action: Action) -> StepResult:
        """See Handle."""
        return self.slot.step(action)

    async def act(self, expert: str, seed: int) -> Move:
        """See Handle."""
        return self.slot.act(expert, seed)

    async def cut(self) -> Verdict | None:
        """See Handle."""
        return self.slot.cut()

    async def write(self, expert: str, seed: int, rewrite: Rewrite) -> Move:
        """See Handle."""
        return self.slot.write(expert, seed, rewrite)

    async def snapshot(self) -> Any:
        """See Handle."""
        return self.slot.snapshot()

    async def restore(self, task: Task, snapshot: Any) -> Observation | None:
        """See Handle."""
        return self.slot.restore(task, snapshot)


class InlinePool:
    """Instances in this process, reused between episodes."""

    def __init__(
        self,
        make: Callable[[], Env],
        expert: Callable[[Env, str, int], Any] | None = None,
        timeout_s: float = 60.0,
        start_s: float = START_S,
        output_chars: int | None = None,
    ) -> None:
        """See Slot."""
        self._build = (make, expert, timeout_s, start_s, output_chars)
        self._idle: list[InlineHandle] = []

    def acquire(self) -> InlineHandle:
        """See Pool."""
        return self._idle.pop() if self._idle else InlineHandle(Slot(*self._build))

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
