"""An event loop that is run many times.

Not `asyncio.Runner`: its Ctrl-C becomes a cancellation that a task may outrun, and on Python 3.11 leaving it formats
the finished task's result for an enum's error message, a long text for a batch of rollouts.
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
        """The coroutine's result."""
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        """Cancel what is left and close."""
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
