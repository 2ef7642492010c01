"""A time limit on a call in the main thread."""

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

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
