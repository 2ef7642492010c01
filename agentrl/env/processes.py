"""Environment pool of pinned worker processes, for environments that are heavy or may hang or crash in C.

Each worker holds many instances and answers a list of calls with a list of answers, so several calls cost one message.
A call that hangs in Python code is stopped inside the worker, and only this call fails. The pool kills a worker that
stops answering, and the episode that hung fails. The pool rebuilds the other episodes of this worker in other workers:
it replays the actions of each episode and compares the observations.
"""

import asyncio
import itertools
import math
import multiprocessing
import os
import pickle
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from typing import Any, NamedTuple

from agentrl.env.channel import Channel
from agentrl.env.limits import START_S
from agentrl.env.pool import BEGINNINGS, Handle, Pool
from agentrl.env.protocol import Env
from agentrl.env.worker import Shared, WorkerAnswer, serve
from agentrl.types import Action, EnvFault, Observation

LOSSES = 10  # number of lost workers after which a call fails
PATIENCE_S = 2.0  # time for the processes of a closed pool to end by themselves
GRACE_S = 5.0  # if a worker has not answered this long after a call's own deadline, it hangs outside Python


class Build(NamedTuple):
    """The settings of every worker of a pool: the arguments of each `Slot`, two time limits [seconds], memory [MB]."""

    slot: tuple[Any, ...]
    timeout_s: float
    start_s: float
    memory_mb: int | None


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back until the block has ended. A process that starts in the block inherits this signal mask.

    Without the mask, a worker that gets Ctrl-C while it imports its modules prints a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class WorkerProcess:
    """One process, the channel to it, and the calls that it has not answered yet."""

    def __init__(self, build: "Build", cpu: int | None) -> None:
        context = multiprocessing.get_context("spawn")
        end, worker_end = socket.socketpair()
        self.channel = Channel(end)
        self.shared = Shared(now=context.RawValue("q", -1), making=context.RawValue("b", False))
        arguments = (worker_end, self.shared, build.slot, build.memory_mb)
        self.process = context.Process(target=serve, args=arguments, daemon=True)
        with _interrupts_held():
            self.process.start()
        worker_end.close()
        if cpu is not None and self.process.pid and hasattr(os, "sched_setaffinity"):
            with suppress(OSError):  # the process may have died already; its channel will show that
                os.sched_setaffinity(self.process.pid, {cpu})
        self.timeout_s, self.start_s = build.timeout_s, build.start_s
        self.waiting: list[tuple[int, int, str, bytes]] = []
        self.sent: set[int] = set()
        self.futures: dict[int, asyncio.Future[Any]] = {}
        self.handles = 0
        self._reader: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._numbers = itertools.count()
        self.dead = False

    def call(self, slot: int, method: str, arguments: tuple[Any, ...]) -> "asyncio.Future[Any]":
        """Queue a call for the next batch."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.dead:
            future.set_exception(WorkerLost())
            return future
        try:
            pickled = pickle.dumps(arguments)
        except Exception as error:  # noqa: BLE001  pickling runs the task's code, which may raise anything
            future.set_exception(ValueError(f"{arguments[0]!r:.80} cannot be sent to a worker process: {error}"))
            return future
        self.futures[self._queue(slot, method, pickled)] = future
        return future

    def forget(self, slot: int) -> None:
        """Queue the closing of an instance, without waiting for an answer."""
        if not self.dead:
            self._queue(slot, "close", pickle.dumps(()))

    def _queue(self, slot: int, method: str, arguments: bytes) -> int:
        loop = asyncio.get_running_loop()
        if self._reader is not loop:
            self.channel.listen(loop, self._receive, self.lose)
            self._reader = loop
            self.futures.clear()  # the event loop of these calls has ended, so no caller waits for them
            self._watch()
        number = next(self._numbers)
        self.waiting.append((number, slot, method, arguments))
        if not self.sent:
            loop.call_soon(self._flush)
        return number

    def _flush(self) -> None:
        if self.sent or not self.waiting or self.dead:
            return
        batch, self.waiting = self.waiting, []
        self.sent = {number for number, _, _, _ in batch}
        self._watch()
        self.channel.send(pickle.dumps(batch))

    def _watch(self, before: tuple[int, bool, int] | None = None, since_s: float = 0.0) -> None:
        """Check the worker at intervals of the call's time limit plus `GRACE_S` until every answer has arrived.

        If the worker has made no progress for that long, it hangs outside Python, and the pool kills it. Progress is
        another call, a finished instance, or further bytes. While the process starts or makes an instance, `start_s`
        replaces the time limit of a call.
        """
        if not self.sent or self._reader is None:
            return
        at = (int(self.shared.now.value), bool(self.shared.making.value), self.channel.received)
        if at != before:
            since_s = self._reader.time()
        starting = at[0] < 0 or at[1]  # the process imports the environment's modules, or makes an instance
        limit_s = (self.start_s if starting else self.timeout_s) + GRACE_S
        if self._reader.time() - since_s > 0.99 * limit_s:  # timers may fire a little early
            self.lose()
        elif self.timeout_s < math.inf:
            self._alarm = self._reader.call_later(self.timeout_s + GRACE_S, self._watch, at, since_s)

    def _receive(self, frame: bytes) -> None:
        try:
            answers: list[WorkerAnswer] = pickle.loads(frame)
        except Exception:  # noqa: BLE001  an environment wrote to the channel, and no later frame can be read
            self.lose()
            return
        for answer in answers:
            self.sent.discard(answer.call)
            future = self.futures.pop(answer.call, None)
            if future is not None and not future.done():
                _settle(future, answer)
        if not self.sent:
            if self._alarm:
                self._alarm.cancel()
            self._flush()

    def lose(self) -> None:
        """Kill the process, which has ended or hangs.

        The call that the process ran fails. Each other call raises WorkerLost, and its handle repeats it in another
        worker.
        """
        if self.dead:
            return
        self.dead = True
        self.channel.close()
        if self._alarm:
            self._alarm.cancel()
        self._kill()
        self.process.join(PATIENCE_S)  # a process that waits for a device or a network disk ends later
        guilty = int(self.shared.now.value)
        for number, future in self.futures.items():
            if future.done():
                continue
            if number == guilty:
                future.set_exception(EnvFault("the worker process died or hung in this call"))
            else:
                future.set_exception(WorkerLost(began=guilty != -1))
        self.futures, self.sent, self.waiting = {}, set(), []

    def hang_up(self) -> None:
        """Tell the process to close its instances and end."""
        self.dead = True
        if self._alarm:
            self._alarm.cancel()
        self.channel.close()

    def join(self, patience_s: float) -> None:
        """Wait for the process to end, at most `patience_s` seconds, then kill it."""
        wait([self.process.sentinel], patience_s)
        self._kill()
        self.process.join(PATIENCE_S)

    def _kill(self) -> None:
        """Kill the process, and the processes that its environments started, if they are still in its process group."""
        pid = self.process.pid or 0
        # AttributeError: the platform has no waitid. OSError: the process was reaped earlier, and its id may belong to
        # another process now.
        with suppress(OSError, AttributeError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            os.killpg(pid, signal.SIGKILL)
        self.process.kill()


def _settle(future: "asyncio.Future[Any]", answer: WorkerAnswer) -> None:
    if answer.kind in ("fault", "no memory"):
        future.set_exception(EnvFault(answer.content))
    elif answer.kind == "mistake":
        future.set_exception(ValueError(answer.content))
    else:
        try:
            future.set_result(pickle.loads(answer.content))
        except Exception as error:  # noqa: BLE001  unpickling runs the environment's code, which may raise anything
            future.set_exception(EnvFault(f"the worker's answer cannot be unpickled: {error}"))


class WorkerLost(Exception):
    """The worker was lost, possibly because of another episode. `began`: had the worker begun to carry out calls?"""

    def __init__(self, began: bool = True) -> None:
        self.began = began


def _text(observation: Observation | None) -> str:
    return "" if observation is None else observation.text


class WorkerHandle(Handle):
    """One instance in a worker, and the record of its episode, from which another worker can rebuild the instance.

    If an expert is lost with its worker, a new expert starts from the current observation.
    """

    def __init__(self, pool: "WorkerPool") -> None:
        self._pool = pool
        self.worker, self.slot = pool.place()
        self._start: tuple[str, tuple[Any, ...]] = ("reset", (None,))  # the call that this episode began with
        self._actions: list[Action] = []
        self._texts: list[str] = []  # text of the first observation and of the observation after each action

    async def call(self, method: str, *args: Any) -> Any:
        if method in BEGINNINGS:
            self._start, self._actions, self._texts = (method, args), [], []
        value = await self._try(method, args)
        if method in BEGINNINGS:
            self._texts.append(_text(value))
        elif method == "step":
            self._actions.append(args[0])
            self._texts.append(value.observation.text)
        return value

    def drop(self) -> None:
        """Let the worker forget this instance."""
        self.worker.forget(self.slot)

    async def _try(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """The value of the call. If another call kills the worker, another worker repeats this call; see LOSSES."""
        must_replay = False
        for _ in range(LOSSES):
            try:
                if must_replay:
                    await self._replay()
                return await self.worker.call(self.slot, method, arguments)
            except WorkerLost as lost:
                if not lost.began:
                    raise EnvFault(
                        "the worker process ended before its first call, or was not ready after limits.start_seconds; "
                        "its output on stderr says why"
                    ) from None
                self.worker, self.slot = self._pool.place()
                must_replay = method not in BEGINNINGS
        raise EnvFault(f"the worker process was lost {LOSSES} times during one call")

    async def _replay(self) -> None:
        """Bring the new slot to the state of this episode."""
        texts = [_text(await self.worker.call(self.slot, *self._start))]
        for action in self._actions:
            result = await self.worker.call(self.slot, "step", (action,))
            texts.append(result.observation.text)
        if texts != self._texts:
            raise EnvFault("after the loss of a worker, replaying the actions gave other observations")


class WorkerPool(Pool):
    """A pool of pinned worker processes; see the module's docstring."""

    def __init__(
        self,
        make: Callable[[], Env],
        expert: Callable[[Env, str, int], Any] | None = None,
        timeout_s: float = 60.0,
        workers: int = 0,
        start_s: float = START_S,
        output_chars: int | None = None,
        memory_mb: int | None = None,
    ) -> None:
        """A pool without workers; each worker starts when it is first needed.

        Args:
            make: makes an instance; must be picklable.
            expert: see `Slot`; must be picklable.
            timeout_s, start_s, output_chars: see `Slot`.
            workers: number of processes, 0 for one per core.
            memory_mb: largest memory of each process in MB; None for no limit.
        """
        self._build = Build((make, expert, timeout_s, start_s, output_chars), timeout_s, start_s, memory_mb)
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [None]
        self._cpus = [cores[i % len(cores)] for i in range(workers or len(cores))]
        self._workers: list[WorkerProcess] = []
        self._slots = itertools.count()
        self._idle: list[WorkerHandle] = []

    def place(self) -> tuple[WorkerProcess, int]:
        """(worker, slot number) of a new slot in the worker with the fewest handles.

        Starts one worker first, if one is missing or dead.
        """
        for i, cpu in enumerate(self._cpus):
            if i == len(self._workers):
                self._workers.append(WorkerProcess(self._build, cpu))
                break
            if self._workers[i].dead:
                self._workers[i] = WorkerProcess(self._build, cpu)
                break
        worker = min((w for w in self._workers if not w.dead), key=lambda w: w.handles)
        worker.handles += 1
        return worker, next(self._slots)

    def acquire(self) -> WorkerHandle:
        while self._idle:
            handle = self._idle.pop()
            if not handle.worker.dead:
                return handle
        return WorkerHandle(self)

    def release(self, handle: WorkerHandle, *, broken: bool) -> None:
        if not broken:
            self._idle.append(handle)
            return
        handle.worker.handles -= 1
        handle.drop()

    def close(self) -> None:
        for worker in self._workers:
            worker.hang_up()
        deadline = time.monotonic() + PATIENCE_S
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))
        self._workers.clear()
        self._idle.clear()
