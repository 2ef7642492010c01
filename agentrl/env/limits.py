"""Limits of an episode."""

import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, NoReturn

from pydantic import BaseModel, Field

from agentrl.types import EnvFault


class Expired(BaseException):
    """The time of a call is up. A BaseException, so that `except Exception` in an environment does not catch it."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """End the block with an EnvFault after `seconds`, in the main thread on POSIX; elsewhere nothing limits the block.

    If the caller has set the same timer (`ITIMER_REAL`), it is set again after the block, with the time that it has
    left.

    Limit: this interrupts Python code and system calls, not a loop inside a C extension. Such a loop ends only if the
    environment runs in a worker process, which the pool kills.
    """
    usable = seconds < math.inf and threading.current_thread() is threading.main_thread()
    if not usable or not hasattr(signal, "setitimer"):
        yield
        return

    def expire(signum: int, frame: object) -> NoReturn:
        raise Expired

    handler = signal.signal(signal.SIGALRM, expire)
    started = time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again each second, if the block catches it
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


BEYOND, GRACE_S = 1.25, 5.0  # see `longest_limit`: so many times the longest limit of a single wait, and these seconds
OWN_LIMITS = ("call_seconds", "start_seconds", "timeout_s", "start_s", "max_wait_s")  # options that bound one wait
START_S = 600.0  # longer than `call_seconds`, because making an instance may read the environment's data


class Limits(BaseModel, frozen=True, extra="forbid"):
    """Section [limits]: limits of an episode, of calls to its environment, and of faults.

    If a limit ends the episode, the status of the episode names this limit, such as `TURN_LIMIT`.

    Attributes:
        turns: largest number of steps of the episode.
        turn_tokens: largest number of tokens sampled in one turn.
        episode_tokens: largest number of tokens sampled in the episode; None for no limit.
        calls: largest number of tool calls of the episode; None for no limit. An answer whose calls would exceed this
            number is not carried out, and ends the episode.
        seconds: largest number of wall-clock seconds of the episode; None for no limit.
        call_seconds: largest number of seconds of one call of the environment; a call that takes longer is a fault.
        silent_seconds: largest number of seconds without progress. A program that sends no request and does not end in
            this time ends its episode, and so does a score that gives no verdict. If nothing at all makes progress, the
            run says where each part stands and, after twice this time, ends with exit code 75 (docs/faults.md). A wait
            that has a longer limit of its own counts as progress until then. `inf` turns all this off.
        output_chars: largest number of characters of an observation, or of each tool's answer in the observation; a
            longer text keeps its head and tail. None for no limit.
        start_seconds: largest number of seconds for making an environment instance, which may have to read the
            environment's data.
        worker_memory_mb: largest memory of each worker process (`pool.kind=processes`), in MB. A call that needs more
            is a fault; a process whose memory is nearly used up is replaced, and its episodes are replayed. None for no
            limit.
        retries: largest number of times that an episode is played again after a fault of the environment or of a
            service (such as a tool's server or the model's endpoint). If a score cannot judge an episode, the episode
            is not played again.
        fault_share: largest share of episodes, those of called agents included, that end with a fault of the
            environment, of a service or of a score. If the share is larger, the run stops. It is also the largest share
            of tasks that are left out because their first prompt leaves no token for an answer.
        cut_turn: an answer that a token limit cut off is parsed as it is (`parse`) or ends the episode (`end`).
        concurrency: largest number of episodes that are played at the same time; 0 for no limit.
        depth: largest number of agent calls that are nested in one another. A call beyond this depth is not played, and
            the episode that made the call ends.
    """

    turns: int = Field(50, ge=1)
    turn_tokens: int = Field(512, ge=1)
    episode_tokens: int | None = Field(None, ge=1)
    calls: int | None = Field(None, ge=0)
    seconds: float | None = Field(None, gt=0)
    call_seconds: float = Field(60.0, gt=0)
    silent_seconds: float = Field(900.0, gt=0)
    output_chars: int | None = Field(16384, ge=64)
    start_seconds: float = Field(START_S, gt=0)
    worker_memory_mb: int | None = Field(None, ge=256)
    retries: int = Field(1, ge=0)
    fault_share: float = Field(0.2, ge=0, le=1)
    cut_turn: Literal["parse", "end"] = "parse"
    concurrency: int = Field(0, ge=0)
    depth: int = Field(4, ge=0)


def longest_limit(tables: Mapping[str, Any], silent_s: float) -> float:
    """Seconds without progress that are too many: `silent_s`, or more than the longest limit of a single wait.

    What such a limit bounds ends by itself, as a fault of one episode or with a server that is started again. So the
    watchdog, and the limit on scores, must not come first.

    Args:
        tables: sections of a resolved recipe, with their options.
        silent_s: `limits.silent_seconds`.
    """
    learner = tables.get("learner")
    local = isinstance(learner, Mapping) and learner.get("name") == "local"  # its options are those of no service
    waiting = {key: one for key, one in tables.items() if not (local and key == "learner")}
    bounds = [bound for bound in _bounds(waiting) if math.isfinite(bound)]
    return max([silent_s, *(BEYOND * bound + GRACE_S for bound in bounds)])


def _bounds(value: Any, name: str = "") -> list[float]:
    if isinstance(value, Mapping):
        return [bound for key, one in value.items() for bound in _bounds(one, str(key))]
    if isinstance(value, list | tuple):
        return [bound for one in value for bound in _bounds(one, name)]
    if name in OWN_LIMITS and isinstance(value, int | float) and not isinstance(value, bool):
        return [float(value)]
    return []
