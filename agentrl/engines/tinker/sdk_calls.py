"""Calls of the SDK: outside event loops, with futures of the standard library, and with known errors."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any

LOOK_S = 30.0  # seconds between two looks of somebody who waits


def awaited(future: "Future[Any]", timeout_s: float, look: Callable[[], None]) -> Any:
    """The result of a future. While it is awaited, `look` is called now and then; an error of it ends the wait.

    Raises:
        TimeoutError: there is no result in `timeout_s` seconds.
    """
    end = time.monotonic() + timeout_s
    while True:
        left = end - time.monotonic()
        if wait([future], max(0.0, min(LOOK_S, left))).done:
            return future.result()
        if left <= LOOK_S:
            raise TimeoutError
        look()


async def awaited_here(future: "Future[Any]", timeout_s: float, look: Callable[[], None]) -> Any:
    """`awaited` in an event loop. If nobody waits any more, the future is cancelled, and the SDK gives it up."""
    inner, end = asyncio.wrap_future(future), time.monotonic() + timeout_s
    try:
        while True:
            left = end - time.monotonic()
            if (await asyncio.wait({inner}, timeout=max(0.0, min(LOOK_S, left))))[0]:
                return inner.result()
            if left <= LOOK_S:
                raise TimeoutError
            await asyncio.to_thread(look)
    finally:
        inner.cancel()  # no effect on a result


def outside(call: Callable[[], Any], timeout_s: float, look: Callable[[], None]) -> Any:
    """The result of a call that may block, made in a thread without an event loop; a future of a client is awaited.

    Args:
        call: the call.
        timeout_s, look: see `awaited`.

    Raises:
        TimeoutError: there is no result in time. The thread is then left alone.
    """
    done: Future[Any] = Future()

    def run() -> None:
        try:
            found = call()
            done.set_result(found.future().result() if hasattr(type(found), "future") else found)
        except BaseException as error:  # noqa: BLE001 - raised again where the result is awaited
            done.set_exception(error)

    threading.Thread(target=run, name="tinker call", daemon=True).start()
    return awaited(done, timeout_s, look)


def quieten(loop: asyncio.AbstractEventLoop) -> None:
    """Let the event loop of the SDK print nothing about errors that nobody awaits any more.

    If a service is gone, the first request that fails ends the run. The others fail while the process ends, and asyncio
    would print their stacks after the sentence with which the run has ended.
    """
    loop.set_exception_handler(_report)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if "never retrieved" not in context.get("message", ""):
        loop.default_exception_handler(context)


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
