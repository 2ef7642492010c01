"""Calls of the SDK: outside event loops, with futures of the standard library, and with known errors."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any


def outside(call: Callable[[], Any], timeout_s: float) -> Any:
    """The result of a call that may block, made in a thread without an event loop; a future of a client is awaited.

    Raises:
        TimeoutError: there is no result in `timeout_s` seconds. The thread is then left alone.
    """
    done: Future[Any] = Future()

    def run() -> None:
        try:
            found = call()
            done.set_result(found.future().result() if hasattr(type(found), "future") else found)
        except BaseException as error:  # noqa: BLE001 - raised again where the result is awaited
            done.set_exception(error)

    threading.Thread(target=run, name="tinker call", daemon=True).start()
    return done.result(timeout_s)


@contextmanager
def raising(known: Callable[[BaseException], Exception]) -> Iterator[None]:
    """Raise the errors of the SDK as `known` turns them. Their causes are left out, because they may quote a key."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the SDK raises errors of many kinds, of other packages too
        raise known(error) from None


def plain(future: Any) -> "Future[Any]":
    """The future of the standard library inside either kind of future of the SDK."""
    inner: Future[Any] = future.future() if hasattr(type(future), "future") else future
    return inner
