"""Promises: requests that are answered at once with a name, worked on later, and fetched by this name.

A client repeats a request whose answer was lost, so a request with the lane and the sequence number of an earlier one
gets the earlier promise, and its work is done once. In an ordered lane (a model) the work is done in the order of the
sequence numbers, which need not be that of arrival. Everything is bounded: promises that wait, their tokens, and
results that nobody fetched.
"""

import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from agentrl.http import Refusal
from agentrl.training_server.verbs import Result, SampleWork, size_of

PROMISES_PER_LANE = 4096  # sequence numbers that a lane remembers


class PromiseFailure(NamedTuple):
    """Why a request failed, in one sentence; `user`: the client has to change something."""

    sentence: str
    user: bool


@dataclass(kw_only=True, eq=False)
class Promise:
    """One request.

    Attributes:
        name: by which it is fetched. No two servers give the same name, so a client that asks a restarted server for an
            earlier result does not get that of another request.
        work: does the work, in the worker's thread; None for samples.
        sampler: for samples, the sampler that answers.
        sample: the request of samples.
        tokens: size of the request.
        arrived: time of arrival.
        outcome: None until the work is done.
        fetched: has the client got the outcome?
    """

    name: str = ""
    work: Callable[[], Result] | None = None
    sampler: str = ""
    sample: SampleWork | None = None
    tokens: int = 0
    arrived: float = 0.0
    outcome: Result | PromiseFailure | None = None
    fetched: bool = False


@dataclass
class _Lane:
    """The requests of a model or a sampler."""

    ordered: bool
    expected: int = 1  # the next sequence number
    known: OrderedDict[int, str] = field(default_factory=OrderedDict)  # sequence number -> promise
    held: dict[int, Promise] = field(default_factory=dict)  # promises that came before one of their predecessors


class PromiseTable:
    """All promises of a server; safe for threads.

    Args:
        most: largest number of promises that wait for the worker.
        most_tokens: largest number of their tokens.
        most_bytes: largest size of the results that are kept for clients to fetch. Above it, results that were fetched
            are dropped first, then the oldest.
        patience_s: how long a request waits for one with a smaller sequence number, which may be lost.
        clock: seconds.
    """

    def __init__(
        self,
        most: int,
        most_tokens: int,
        most_bytes: int,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most, self._most_tokens, self._most_bytes = most, most_tokens, most_bytes
        self._patience_s, self._clock = patience_s, clock
        self._changed = threading.Condition()
        self._lanes: dict[str, _Lane] = {}
        self._ready: deque[Promise] = deque()
        self._waiting: dict[str, Promise] = {}  # promises without an outcome
        self._done: OrderedDict[str, Promise] = OrderedDict()
        self._tokens, self._bytes, self._closed = 0, 0, False

    def open_lane(self, lane: str, *, ordered: bool) -> None:
        """Begin a lane; an existing one stays as it is."""
        with self._changed:
            self._lanes.setdefault(lane, _Lane(ordered))

    def close_lane(self, lane: str) -> None:
        """Forget a lane. Its promises that wait are still worked on, without the missing ones."""
        with self._changed:
            closed = self._lanes.pop(lane, None)
            if closed is not None:
                self._ready.extend(closed.held[key] for key in sorted(closed.held))
                self._changed.notify_all()

    def submit(self, lane: str, seq: int | None, promise: Promise) -> str:
        """Accept a request; returns the name of its promise, or that of the promise with the same number.

        Raises:
            Refusal: the lane is not open; the queue is full; or the number is older than those the lane remembers.
        """
        with self._changed:
            found = self._lanes.get(lane)
            if found is None:
                raise Refusal(
                    404,
                    f"{lane!r:.200} is not known here: it was unloaded, or its session has ended; make it again, "
                    "from a checkpoint if there is one",
                )
            if seq is not None and seq in found.known:
                return found.known[seq]
            if len(self._waiting) >= self._most or (
                self._waiting and self._tokens + promise.tokens > self._most_tokens
            ):
                raise Refusal(429, "the queue of this server is full: send the request again later", "busy")
            if seq is not None and found.ordered and seq < found.expected:
                raise Refusal(400, f"seq_id {seq} is too old: this server has gone on to {found.expected}")
            promise.name, promise.arrived = secrets.token_hex(16), self._clock()
            self._waiting[promise.name] = promise
            self._tokens += promise.tokens
            if seq is not None:
                found.known[seq] = promise.name
                if len(found.known) > PROMISES_PER_LANE:
                    found.known.popitem(last=False)
            self._place(found, seq, promise)
            self._changed.notify_all()
            return promise.name

    def _place(self, lane: _Lane, seq: int | None, promise: Promise) -> None:
        """Put a promise into the queue, or hold it until its predecessors have come."""
        if seq is None or not lane.ordered or seq < lane.expected:
            self._ready.append(promise)
            return
        lane.held[seq] = promise
        while lane.expected in lane.held:
            self._ready.append(lane.held.pop(lane.expected))
            lane.expected += 1

    def take(self, timeout_s: float) -> Promise | None:
        """The next promise to work on; None if none has come within the timeout, or the table is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._closed, timeout_s)
            return self._ready.popleft() if self._ready and not self._closed else None

    def more_samples(self, same: Callable[[str], bool], most: int, past_others: bool) -> list[Promise]:
        """Take up to `most` samples whose sampler is `same`, as far as no training request came before them.

        Args:
            same: tells the samplers.
            most: the largest number.
            past_others: also take those that came after samples of other samplers.
        """
        with self._changed:
            early: list[Promise] = []
            for promise in self._ready:
                if promise.sample is None or len(early) >= most:
                    break
                if same(promise.sampler):
                    early.append(promise)
                elif not past_others:
                    break
            if early:
                taken = {promise.name for promise in early}
                self._ready = deque(promise for promise in self._ready if promise.name not in taken)
            return early

    def finish(self, promise: Promise, outcome: Result | PromiseFailure) -> None:
        """Set the outcome of a promise."""
        with self._changed:
            promise.outcome, promise.work, promise.sample = outcome, None, None
            if self._waiting.pop(promise.name, None) is not None:
                self._tokens -= promise.tokens
            self._done[promise.name] = promise
            self._bytes += _size(promise)
            while self._bytes > self._most_bytes and len(self._done) > 1:
                oldest = next(iter(self._done))
                name = next((name for name, one in self._done.items() if one.fetched), oldest)
                self._bytes -= _size(self._done.pop(name))
            self._changed.notify_all()

    def wait(self, name: str, timeout_s: float) -> Result | PromiseFailure | None:
        """The outcome of a promise; None if there is none within the timeout.

        Raises:
            Refusal: this server has no such promise.
        """
        with self._changed:
            if name not in self._waiting and name not in self._done:
                raise Refusal(
                    410,
                    f"no request {name!r:.100} here: the server was started again, or dropped its result; load a "
                    "checkpoint, and send the requests after it again",
                )
            self._changed.wait_for(lambda: name in self._done or self._closed, timeout_s)
            done = self._done.get(name)
            if done is None:
                return None
            done.fetched = True
            return done.outcome

    def give_up_gaps(self) -> list[Promise]:
        """The held promises whose predecessor is late. The caller fails them; their lanes go on after them."""
        late: list[Promise] = []
        with self._changed:
            for lane in self._lanes.values():
                if lane.held and self._clock() - min(one.arrived for one in lane.held.values()) > self._patience_s:
                    first = min(lane.held)
                    late.append(lane.held.pop(first))
                    lane.expected = first + 1
                    while lane.expected in lane.held:
                        self._ready.append(lane.held.pop(lane.expected))
                        lane.expected += 1
        return late

    def close(self) -> None:
        """Let `take` and `wait` return at once."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _size(promise: Promise) -> int:
    """About how many bytes the outcome of a promise takes."""
    assert promise.outcome is not None
    return 1000 if isinstance(promise.outcome, PromiseFailure) else size_of(promise.outcome)
