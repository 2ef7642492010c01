"""An event loop that runs many coroutines, one after another.

It replaces `asyncio.Runner`, which turns Ctrl-C into a cancellation, so a task that finishes first loses it. And on
Python 3.11 the runner's exit formats the finished task's result for an error message of an enum, which takes long for a
batch of rollouts.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE_S = 2.0  # for cancelled tasks to end
ROUNDS = 8


class Loop:
    """Runs coroutines one after another on one event loop; KeyboardInterrupt is raised where it happens."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> "Loop":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; its result."""
        return self._loop.run_until_complete(work)

    def soon(self, call: Callable[[], None]) -> None:
        """Have `call` run by the loop when it runs next; any thread may ask for it."""
        self._loop.call_soon_threadsafe(call)

    def close(self) -> None:
        """Cancel the tasks that still run, wait at most PATIENCE_S in each of ROUNDS rounds, and close the loop.

        A task that an interrupt ends passes it to the tasks that await it, one after another. Each of them stops the
        loop once more, so that one round of cancelling would leave the others pending.
        """
        self._loop.set_exception_handler(lambda loop, context: None)  # errors of cancelled tasks concern nobody
        try:
            for _ in range(ROUNDS):
                left = asyncio.all_tasks(self._loop)
                if not left:
                    break
                for task in left:
                    task.cancel()
                with suppress(KeyboardInterrupt):
                    self._loop.run_until_complete(asyncio.wait(left, timeout=PATIENCE_S))
            with suppress(KeyboardInterrupt):
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()
