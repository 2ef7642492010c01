"""Collects requests that one program sends at the same time, and passes them on together, in the order of their texts.

A program that sends several requests at once sends them within milliseconds, in an order that its threads decide. The
endpoint therefore waits `SETTLE_S` seconds for further requests before it passes requests to the engine. So requests
that were sent at once are in flight together even if an engine answers within a millisecond, and their numbers, noise
keys and sessions are the same in every run.

In lockstep, which `run.deterministic` switches on, requests that were passed on together are also answered together,
and requests that come later wait for these answers. Without lockstep, the batches of the engine, and with them the
rounding of log-probs, depend on the time that a program needs after the first answer.
"""

import asyncio
from typing import Any

SETTLE_S = 0.05  # if no further request comes for this many seconds, the waiting requests are passed on
MOST_S = 1.0  # the longest time in seconds for which a request waits for further requests, see `Arrivals.come`


class Arrivals:
    """The requests of one episode that wait for further requests.

    Args:
        lockstep: see the module's docstring.
    """

    def __init__(self, lockstep: bool = False) -> None:
        self.lockstep = lockstep
        self._waiting: list[tuple[Any, asyncio.Future[None]]] = []
        self._answered: list[asyncio.Future[None]] = []
        self._in_flight = 0
        self._timer: asyncio.TimerHandle | None = None
        self._latest = 0.0

    async def come(self, order: Any) -> None:
        """Return when the request may be passed on.

        This is when no further request has come for `SETTLE_S` seconds, and at the latest `MOST_S` seconds after the
        first waiting request came. In lockstep, these times begin only when all requests that were passed on before are
        answered.

        Args:
            order: requests that came together are passed on in ascending order of this value.
        """
        go_on: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((order, go_on))
        if not (self.lockstep and self._in_flight):
            self._settle(first=len(self._waiting) == 1)
        await go_on

    async def leave(self) -> None:
        """Return when the answer to a request may be given.

        Call this method once per request for which `come` has returned.
        """
        self._in_flight -= 1
        if not self.lockstep:
            return
        if self._in_flight:
            others: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._answered.append(others)
            await others
            return
        answered, self._answered = self._answered, []
        for others in answered:
            if not others.done():
                others.set_result(None)
        if self._waiting:
            self._settle(first=True)

    def _settle(self, first: bool) -> None:
        loop = asyncio.get_running_loop()
        if first:
            self._latest = loop.time() + MOST_S
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(min(loop.time() + SETTLE_S, self._latest), self._release)

    def _release(self) -> None:
        waiting = [one for one in self._waiting if not one[1].done()]  # a cancelled future is done, too
        self._waiting, self._in_flight = [], self._in_flight + len(waiting)
        for _, go_on in sorted(waiting, key=lambda one: one[0]):
            go_on.set_result(None)
