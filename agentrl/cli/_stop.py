"""How a verb is stopped: on Ctrl-C or SIGTERM (`kill`, a scheduler) it closes its resources and prints one sentence.

The first signal raises KeyboardInterrupt in the main thread, wherever that is. Signals in the next PATIENCE_S seconds
are not needed and do not disturb the closing; a later one ends the process at once. A background job of a shell
ignores Ctrl-C; SIGTERM always works.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 3.0  # for closing, before a repeated signal ends the process
AGAIN_S = 0.05  # until a signal that arrived where Python cannot raise is raised elsewhere
LAST_S = 10.0  # for the interpreter to end after the sentence; threads that hang are then left
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _State:
    """The stop of this process: the signal, when it arrived, and what the sentence adds."""

    signum = 0
    at_s = 0.0
    told = False
    hint: Callable[[], str] = staticmethod(lambda: "")


def listen() -> None:
    """Stop on SIGINT and SIGTERM, but not on one that the parent process has set to be ignored."""
    for signum in SIGNALS:
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _stop)
    sys.unraisablehook = _unraisable
    threading.excepthook = _in_a_thread


def on_stop(hint: Callable[[], str]) -> None:
    """Let the sentence end with what `hint` returns, such as `; continue with: ...`."""
    _State.hint = staticmethod(hint)


def requested() -> bool:
    """Has a signal arrived? Then any error that ends the verb is a consequence of the stop."""
    return _State.signum != 0


def finish(error: BaseException) -> int:
    """Print the sentence; the exit code, 128 plus the number of the signal: 130 for Ctrl-C, 143 for SIGTERM."""
    signum = _State.signum or next((n for n in error.args if isinstance(n, int)), int(signal.SIGINT))
    if requested():
        for one in SIGNALS:  # the sentence is the last word: nothing may interrupt the interpreter's end
            signal.signal(one, signal.SIG_IGN)
        watch = threading.Timer(LAST_S, os._exit, (128 + signum,))
        watch.daemon = True
        watch.start()
    # CPython notes an interrupt that passed through `exec`, as in dataclasses, and would end with that signal in place
    # of this exit code; the next `exec` forgets it.
    exec("")
    _tell()
    return 128 + signum


def release() -> None:
    """The verb has ended: a signal from now on ends the process without a message."""
    for signum in SIGNALS:
        if signal.getsignal(signum) is _stop:
            signal.signal(signum, signal.SIG_DFL)


def _stop(signum: int, frame: object) -> None:
    if not requested():
        _State.signum, _State.at_s = signum, time.monotonic()
        logging.getLogger("asyncio").disabled = True  # it reports every task that the interrupt ends
        raise KeyboardInterrupt(signum)
    if time.monotonic() - _State.at_s > PATIENCE_S:
        _tell()
        os._exit(128 + signum)


def _tell() -> None:
    """The sentence, once; with a terminal, the cursor that a progress bar hid is shown again."""
    if _State.told:
        return
    _State.told = requested()
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
    print(f"{show_cursor}agentrl: stopped{_State.hint()}", file=sys.stderr, flush=True)


def _unraisable(unraisable: Any) -> None:
    """The interrupt arrived where Python cannot raise it, such as in `__del__`: raise it in the main code instead.

    That is done a moment later, by another thread: an interrupt within this function would be lost too.
    """
    if isinstance(unraisable.exc_value, KeyboardInterrupt) and requested():
        signum, _State.signum = _State.signum, 0
        main = threading.main_thread().ident or 0
        again = threading.Timer(AGAIN_S, signal.pthread_kill, (main, signum))
        again.daemon = True
        again.start()
    elif not requested():
        sys.__unraisablehook__(unraisable)


def _in_a_thread(arguments: Any) -> None:
    if not requested():
        threading.__excepthook__(arguments)
