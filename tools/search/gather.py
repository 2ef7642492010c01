"""Joins queries that several threads ask at the same time into one request.

A lane is the right to have one request on its way. A thread whose query waits takes a free lane, and sends its query
together with all other queries that wait. Queries that arrive while all lanes are taken go into the next request. No
query waits for other queries: if a lane is free, it is sent at once.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from agentrl.tool import Passage

Send = Callable[[list[str], int], list[list[Passage]]]


@dataclass(eq=False)
class _Ticket:
    query: str
    k: int
    alone: bool = False  # the query was part of a request that failed, so its next request has no other query
    passages: list[Passage] | None = None
    fault: Exception | None = None

    @property
    def done(self) -> bool:
        return self.passages is not None or self.fault is not None


class Gatherer:
    """Shares requests between threads.

    Args:
        send: carries out one request; called by one of the threads that wait for it.
        most: largest number of queries per request.
        lanes: largest number of requests on their way at once.
    """

    def __init__(self, send: Send, *, most: int, lanes: int) -> None:
        self._send, self._most, self._lanes = send, most, lanes
        self._changed = threading.Condition()
        self._waiting: list[_Ticket] = []

    def ask(self, queries: list[str], k: int) -> list[list[Passage]]:
        """The passages of each query.

        Raises:
            Exception: what `send` raised for one of these queries. If a request with several queries fails, its
            queries are sent again one by one, so that no query fails because of another.
        """
        mine = [_Ticket(query, k) for query in queries]
        with self._changed:
            self._waiting.extend(mine)
        try:
            while batch := self._take(mine):
                self._carry(batch)
        finally:
            with self._changed:
                self._waiting = [t for t in self._waiting if t not in mine]  # if this thread was interrupted
        faults = [t.fault for t in mine if t.fault is not None]
        if faults:
            raise faults[0]
        return [t.passages or [] for t in mine]

    def _take(self, mine: list[_Ticket]) -> list[_Ticket]:
        """The queries that this thread sends next; empty when all its own queries are answered."""
        with self._changed:
            while not all(ticket.done for ticket in mine):
                first = next((t for t in self._waiting if t in mine), None)
                if first is not None and self._lanes > 0:
                    self._lanes -= 1
                    alike = [t for t in self._waiting if t is not first and t.k == first.k and not t.alone]
                    batch = [first] if first.alone else [first, *alike][: self._most]
                    self._waiting = [t for t in self._waiting if t not in batch]
                    return batch
                self._changed.wait()
            return []

    def _carry(self, batch: list[_Ticket]) -> None:
        """Send one request. Each query of the batch then has its passages or its fault, or waits to be sent alone."""
        queries = list(dict.fromkeys(ticket.query for ticket in batch))
        try:
            found = dict(zip(queries, self._send(queries, batch[0].k), strict=True))
            for ticket in batch:
                ticket.passages = found[ticket.query]
        except Exception as error:  # noqa: BLE001  handed to those who asked
            for ticket in batch:
                ticket.alone = True
                ticket.fault = error if len(queries) == 1 else None
        finally:
            with self._changed:
                self._lanes += 1
                self._waiting.extend(t for t in batch if not t.done)
                self._changed.notify_all()
