"""An event loop that runs many coroutines, one after another.

It replaces `asyncio.Runner` for two reasons. The runner turns Ctrl-C into a cancellation of the main task, and the
Ctrl-C is lost if the task finishes before the cancellation. On Python 3.11, the runner formats the result of the task
for an error message when it exits, which takes long for a batch of rollouts.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE_S = 2.0  # time for cancelled tasks to end, per round of `close`
ROUNDS = 8  # largest number of rounds of `close`


class Loop:
    """Runs coroutines one after another on one event loop; Ctrl-C raises KeyboardInterrupt in the running code."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> "Loop":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result."""
        return self._loop.run_until_complete(work)

    def soon(self, call: Callable[[], None]) -> None:
        """Let the loop call `call` as soon as the loop runs. Any thread may use this method."""
        self._loop.call_soon_threadsafe(call)

    def close(self) -> None:
        """Cancel the tasks that still run, wait at most ROUNDS times PATIENCE_S for them, and close the loop.

        If KeyboardInterrupt ends a task, the tasks that await this task get the interrupt too, one after another. Each
        interrupt stops the loop again, so several rounds may be needed until no task is pending.
        """
        self._loop.set_exception_handler(lambda loop, context: None)  # do not print errors of cancelled tasks
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
