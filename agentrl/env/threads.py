"""Environment pool of threads, for environments whose steps wait for a network, a process or another machine.

While the environment of one episode waits, the engine answers other episodes. If a call takes too long, the pool gives
up the call, and only the episode of this call fails. The pool interrupts the thread of the call: Python code stops at
once; if the thread waits in C code, it stops when the C code returns.
"""

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from agentrl.env.limits import START_S, Expired
from agentrl.env.pool import BEGINNINGS, Handle, Pool, Slot
from agentrl.env.protocol import Env
from agentrl.types import EnvFault

MOST_GIVEN_UP = 256  # largest number of calls that may hang at the same time; each uses memory until it returns


class Thread:
    """One daemon thread, which carries out jobs one at a time."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="agentrl environment", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while True:
            with suppress(Expired):  # a late interrupt may be raised while the thread waits for its next job
                if (job := self._jobs.get()) is None:
                    return
                job()

    def interrupt(self) -> None:
        """Raise Expired in the thread's job as soon as the job runs Python code; later jobs are carried out."""
        ident = ctypes.c_ulong(self._thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Expired))
        self.do(lambda: None)  # if the interrupt arrives after the job has finished, it hits this empty job

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended, at most `seconds`."""
        self._thread.join(max(0.0, seconds))

    def do(self, job: Callable[[], None] | None) -> None:
        """Carry out a job, which must not raise; None ends the thread."""
        self._jobs.put(job)


class ThreadHandle(Handle):
    """One instance and its thread, in which every call of the instance runs.

    One thread is needed because some objects work only in the thread that made them, such as SQLite connections.
    """

    def __init__(self, pool: "ThreadPool") -> None:
        self._pool, self.slot = pool, Slot(*pool.build)
        self.thread = Thread()
        self.given_up = False

    async def call(self, method: str, *args: Any) -> Any:
        if method in BEGINNINGS:  # making the instance has a time limit of its own
            await self._pool.run(self, self.slot.prepare, self._pool.start_s)
        return await self._pool.run(self, lambda: getattr(self.slot, method)(*args), self._pool.timeout_s)


class ThreadPool(Pool):
    """See the module's docstring. Instances, each with its thread, are made when needed and reused."""

    def __init__(
        self,
        make: Callable[[], Env],
        expert: Callable[[Env, str, int], Any] | None = None,
        timeout_s: float = 60.0,
        start_s: float = START_S,
        output_chars: int | None = None,
    ) -> None:
        """See Slot."""
        self.build = (make, expert, timeout_s, start_s, output_chars)
        self.timeout_s, self.start_s = timeout_s, start_s
        self._idle: list[ThreadHandle] = []
        self._given_up = 0

    async def run(self, handle: ThreadHandle, call: Callable[[], Any], seconds: float) -> Any:
        """The value of a call, made in a thread.

        Raises:
            EnvFault: the call failed, did not return in time, or was not made because too many calls hang. After an
                EnvFault, the handle must be discarded.
        """
        if self._given_up >= MOST_GIVEN_UP:
            raise EnvFault(f"{self._given_up} calls hang in their threads, so the pool makes no further call")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        thread = handle.thread

        def settle(value: Any, error: BaseException | None) -> None:
            if handle.given_up:
                self._given_up -= 1
                return
            if not answer.done():
                answer.set_exception(error) if error is not None else answer.set_result(value)

        def job() -> None:
            value, error = None, None
            try:
                value = call()
            except BaseException as raised:  # noqa: BLE001  raised again where the caller waits
                error = raised
            with suppress(RuntimeError):  # the event loop may have ended meanwhile
                loop.call_soon_threadsafe(settle, value, error)

        thread.do(job)
        done: set[asyncio.Future[Any]] = set()
        try:
            done, _ = await asyncio.wait([answer], timeout=seconds)
        finally:  # the time is up, or the waiting caller was cancelled
            if not done:
                handle.given_up = True
                self._given_up += 1
                thread.interrupt()
                thread.do(handle.slot.close)
                thread.do(None)
        if not done:
            raise EnvFault(f"no answer in {seconds:g} s")
        return answer.result()

    def acquire(self) -> ThreadHandle:
        return self._idle.pop() if self._idle else ThreadHandle(self)

    def release(self, handle: ThreadHandle, *, broken: bool) -> None:
        if not broken:
            self._idle.append(handle)
        elif not handle.given_up:  # otherwise `run` has queued the same two jobs already
            handle.thread.do(handle.slot.close)
            handle.thread.do(None)

    def close(self) -> None:
        closing = list(self._idle)
        self._idle.clear()
        for handle in closing:
            handle.thread.do(handle.slot.close)
            handle.thread.do(None)
        ends_at = time.monotonic() + self.timeout_s
        for handle in closing:  # wait at most `timeout_s` seconds for all instances to close
            handle.thread.join(ends_at - time.monotonic())
