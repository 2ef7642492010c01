"""An event loop that runs many coroutines, one after another.

It replaces `asyncio.Runner`, which turns Ctrl-C into a cancellation, so a task that finishes first loses it. And on
Python 3.11 the runner's exit formats the finished task's result for an error message of an enum, which takes long for a
batch of rollouts.
"""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


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

    def close(self) -> None:
        """Cancel the tasks that still run, and close the loop."""
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
