"""Runs coroutines of tools from ordinary code: one event loop for the whole process, in its own thread."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Sequence
from typing import Any

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def shared_loop() -> asyncio.AbstractEventLoop:
    """The event loop. The first call starts it; a forked child lacks the loop's thread and starts a new loop."""
    global _loop
    with _lock:
        if _loop is None or not any(t.name == _name(_loop) for t in threading.enumerate()):
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name=_name(_loop), daemon=True).start()
        return _loop


def _name(loop: asyncio.AbstractEventLoop) -> str:
    return f"agentrl tools {id(loop)}"


async def _outcome(work: Awaitable[Any]) -> Any:
    """The value or exception of an awaitable. If a `SystemExit` left this coroutine, it would end the shared loop."""
    try:
        return await work
    except BaseException as error:  # noqa: BLE001  handed to the caller
        return error


def run_all(work: Sequence[Awaitable[Any]]) -> list[Any]:
    """Run all awaitables at the same time; returns the value or exception of each, in order.

    If the caller is interrupted while it waits, the awaitables are cancelled.
    """

    async def gather() -> list[Any]:
        return list(await asyncio.gather(*map(_outcome, work)))

    future = asyncio.run_coroutine_threadsafe(gather(), shared_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def settled(value: Any) -> Any:
    """The result of the value if it is awaitable (this call waits for it), else the value itself."""
    if not inspect.isawaitable(value):
        return value
    (outcome,) = run_all([value])
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome
