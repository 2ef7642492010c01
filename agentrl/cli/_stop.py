"""How a verb is stopped: on Ctrl-C or SIGTERM (`kill`, a scheduler) it closes its resources and prints one sentence.

A background job of a shell ignores Ctrl-C; SIGTERM always works.
"""

import signal
from typing import NoReturn


def listen() -> None:
    """Make SIGTERM raise KeyboardInterrupt, as Ctrl-C does, unless the parent process has set it to be ignored."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _stop)


def _stop(signum: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt(signum)


def exit_code(stop: KeyboardInterrupt) -> int:
    """128 plus the number of the signal: 130 for Ctrl-C, 143 for SIGTERM."""
    number = stop.args[0] if stop.args else None
    return 128 + (int(number) if isinstance(number, int) else int(signal.SIGINT))
