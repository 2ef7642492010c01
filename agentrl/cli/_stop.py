"""How a verb is stopped: Ctrl-C and SIGTERM (`kill`, a scheduler) alike close what it holds, and one sentence says so.

A shell has its background jobs ignore Ctrl-C, and so do we there; SIGTERM always works.
"""

import signal
from typing import NoReturn


def listen() -> None:
    """From now on SIGTERM raises KeyboardInterrupt, as Ctrl-C does; unless whoever started us has it ignored."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _stop)


def _stop(signum: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt(signum)


def exit_code(stop: KeyboardInterrupt) -> int:
    """128 and the signal's number: 130 for Ctrl-C, 143 for SIGTERM."""
    number = stop.args[0] if stop.args else None
    return 128 + (int(number) if isinstance(number, int) else int(signal.SIGINT))
