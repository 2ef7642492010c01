"""Passes requests of one program on together if they come at the same time, in an order that arrival does not change.

A program that sends several requests at once sends them within milliseconds, in an order that its threads decide. The
endpoint therefore waits a moment for further requests before it passes a request to the engine. So requests that were
sent at once are in flight together even if an engine answers within a millisecond, and their numbers, noise keys and
sessions are the same in every run.
"""

import asyncio
from typing import Any

SETTLE_S = 0.05  # seconds without a further request, after which the requests that wait are passed on
MOST_S = 1.0  # most seconds that a request waits for further ones


class Arrivals:
    """The requests of one episode that wait for further ones."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Any, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._latest = 0.0

    async def together(self, order: Any) -> None:
        """Return when no further request has come for `SETTLE_S`.

        Args:
            order: requests that came together go on in ascending order of this value.
        """
        loop = asyncio.get_running_loop()
        go_on: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            self._latest = loop.time() + MOST_S
        self._waiting.append((order, go_on))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(min(loop.time() + SETTLE_S, self._latest), self._release)
        await go_on

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, go_on in sorted(waiting, key=lambda one: one[0]):
            if not go_on.done():
                go_on.set_result(None)
