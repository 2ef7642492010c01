"""Environment pool of pinned worker processes with batched pipes, for environments that are heavy or may hang in C.

Each worker holds many instances and answers a list of calls with a list of answers, so a busy pipe costs one message a
batch. A call that hangs in Python fails alone, inside the worker; a worker that stops answering is killed, the hung
episode fails, and its siblings are rebuilt elsewhere by replaying their actions and comparing what they observe.
"""

import asyncio
import itertools
import math
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from agentrl.env import Env, Move
from agentrl.pool import EnvFault, Slot
from agentrl.types import Observation, StepResult, Task

GRACE_S = 5.0  # a worker that has not answered this long after a call's own deadline is hung outside Python


def serve(pipe: Connection, now: Any, make: Callable[[], Env], expert: Any, timeout_s: float) -> None:
    """A worker's loop: lists of (call id, slot, method, arguments) in, lists of (call id, fault or None, value) out.

    `now` is a shared integer that names the call being carried out: whose fault it is if the process dies.
    """
    slots: dict[int, Slot] = {}
    while True:
        try:
            calls = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        answers = []
        for call, number, method, arguments in calls:
            now.value = call
            slot = slots.setdefault(number, Slot(make, expert, timeout_s))
            try:
                answers.append((call, None, getattr(slot, method)(*arguments)))
            except EnvFault as fault:
                answers.append((call, str(fault), None))
                slots.pop(number).close()
        pipe.send(answers)


class Worker:
    """One process, its pipe, and the calls on their way."""

    def __init__(self, make: Callable[[], Env], expert: Any, timeout_s: float, cpu: int | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.now = context.RawValue("q", -1)
        self.process = context.Process(target=serve, args=(theirs, self.now, make, expert, timeout_s), daemon=True)
        self.process.start()
        theirs.close()
        if cpu is not None and self.process.pid and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self.process.pid, {cpu})
        self.timeout_s = timeout_s
        self.waiting: list[tuple[int, int, str, tuple[Any, ...]]] = []
        self.sent: set[int] = set()
        self.futures: dict[int, asyncio.Future[Any]] = {}
        self.handles = 0
        self._reader: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._numbers = itertools.count()
        self.dead = False

    def call(self, slot: int, method: str, arguments: tuple[Any, ...]) -> "asyncio.Future[Any]":
        """Queue a call; it leaves with the next batch."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if self.dead:
            future.set_exception(WorkerLost())
            return future
        if self._reader is not loop:
            loop.add_reader(self.pipe.fileno(), self._receive)
            self._reader = loop
        number = next(self._numbers)
        self.futures[number] = future
        self.waiting.append((number, slot, method, arguments))
        if not self.sent:
            loop.call_soon(self._flush)
        return future

    def _flush(self) -> None:
        if self.sent or not self.waiting or self.dead:
            return
        batch, self.waiting = self.waiting, []
        self.sent = {number for number, _, _, _ in batch}
        try:
            self.pipe.send(batch)
        except OSError:
            self.lose()
            return
        self._watch(-1)

    def _watch(self, before: int) -> None:
        """Look again after a call's deadline and the grace: a worker still at the same call hangs outside Python."""
        if self.sent and before >= 0 and self.now.value == before:
            self.lose()
        elif self._reader is not None and self.timeout_s < math.inf:
            self._alarm = self._reader.call_later(self.timeout_s + GRACE_S, self._watch, self.now.value)

    def _receive(self) -> None:
        try:
            answers = self.pipe.recv()
        except (EOFError, OSError):
            self.lose()
            return
        if self._alarm:
            self._alarm.cancel()
        self.sent = set()
        for number, fault, value in answers:
            future = self.futures.pop(number)
            if future.done():
                continue
            if fault is None:
                future.set_result(value)
            else:
                future.set_exception(EnvFault(fault))
        self._flush()

    def lose(self) -> None:
        """The process is gone or hung: end it. The call it was at fails; the others may be replayed elsewhere."""
        self.dead = True
        if self._reader is not None:
            self._reader.remove_reader(self.pipe.fileno())
        if self._alarm:
            self._alarm.cancel()
        self.process.kill()
        self.process.join()
        self.pipe.close()
        guilty = int(self.now.value)
        for number, future in self.futures.items():
            if not future.done():
                lost = EnvFault("the worker process died or hung in this call") if number == guilty else WorkerLost()
                future.set_exception(lost)
        self.futures, self.sent, self.waiting = {}, set(), []

    def close(self) -> None:
        """End the process politely, then not."""
        if self.dead:
            return
        self.dead = True
        if self._reader is not None and not self._reader.is_closed():
            self._reader.remove_reader(self.pipe.fileno())
        self.pipe.close()
        self.process.join(2.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class WorkerLost(Exception):
    """The worker went down, perhaps through a sibling's fault."""


class WorkerHandle:
    """One instance in a worker, with the record that rebuilds it should the worker be lost."""

    def __init__(self, pool: "WorkerPool") -> None:
        self._pool = pool
        self.worker, self.slot = pool.place()
        self._task: Task | None = None
        self._actions: list[str] = []
        self._texts: list[str] = []

    async def reset(self, task: Task) -> Observation:
        """See Handle."""
        self._task, self._actions, self._texts = task, [], []
        observation: Observation = await self._try("reset", (task,))
        self._texts.append(observation.text)
        return observation

    async def step(self, action: str) -> StepResult:
        """See Handle."""
        result: StepResult = await self._try("step", (action,))
        self._actions.append(action)
        self._texts.append(result.observation.text)
        return result

    async def act(self, expert: str, seed: int) -> Move:
        """See Handle. An expert that was lost with its worker starts anew from the current observation."""
        move: Move = await self._try("act", (expert, seed))
        return move

    async def _try(self, method: str, arguments: tuple[Any, ...]) -> Any:
        for _ in range(2):
            try:
                return await self.worker.call(self.slot, method, arguments)
            except WorkerLost:
                await self._rebuild(replay=method != "reset")
        raise EnvFault("the worker process was lost twice in this episode")

    async def _rebuild(self, *, replay: bool) -> None:
        """A new slot in a living worker, brought to where this episode was."""
        self.worker, self.slot = self._pool.place()
        if not replay:
            return
        try:
            texts = [(await self.worker.call(self.slot, "reset", (self._task,))).text]
            for action in self._actions:
                texts.append((await self.worker.call(self.slot, "step", (action,))).observation.text)
        except WorkerLost:
            raise EnvFault("the worker process was lost again while replaying this episode") from None
        if texts != self._texts:
            raise EnvFault("after the loss of a worker, replaying the actions gave other observations")


class WorkerPool:
    """k pinned processes; see the module."""

    def __init__(
        self,
        make: Callable[[], Env],
        expert: Callable[[Env, str, int], Any] | None = None,
        timeout_s: float = 60.0,
        workers: int = 0,
    ) -> None:
        """make and expert must be picklable; workers=0 takes one a core."""
        self._build = (make, expert, timeout_s)
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [None]
        self._cpus = [cores[i % len(cores)] for i in range(workers or len(cores))]
        self._workers: list[Worker] = []
        self._slots = itertools.count()
        self._idle: list[WorkerHandle] = []

    def place(self) -> tuple[Worker, int]:
        """A slot in the worker that holds the fewest handles; dead workers are replaced."""
        for i, cpu in enumerate(self._cpus):
            if i == len(self._workers):
                self._workers.append(Worker(*self._build, cpu))
                break
            if self._workers[i].dead:
                self._workers[i] = Worker(*self._build, cpu)
                break
        worker = min((w for w in self._workers if not w.dead), key=lambda w: w.handles)
        worker.handles += 1
        return worker, next(self._slots)

    def acquire(self) -> WorkerHandle:
        """See Pool."""
        while self._idle:
            handle = self._idle.pop()
            if not handle.worker.dead:
                return handle
        return WorkerHandle(self)

    def release(self, handle: WorkerHandle, *, broken: bool) -> None:
        """See Pool."""
        if broken:
            handle.worker.handles -= 1
        else:
            self._idle.append(handle)

    def close(self) -> None:
        """See Pool."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        self._idle.clear()
