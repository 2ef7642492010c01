"""The processes of the learners as actors of a Ray cluster, on any machine of the cluster.

Rank 0 is the run itself; the other ranks are actors in one placement group, each with a CPU and, on GPUs, a GPU. To
send a message, rank 0 calls the method `carry_out` of each actor. Rank 0 puts the graph of a message into Ray's object
store one time; the actors of a machine read it there without a copy. Gradients and weights go through torch's process
group, as they do without Ray.

If a rank ends, or its machine is lost, the run ends with an error. `--resume` continues from the last checkpoint.
"""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Any

import torch
import torch.distributed as dist

from agentrl.cluster.leading import begun, carry_out
from agentrl.cluster.learner_group import PATIENCE_S, LearnerGroup, RankMessage, RankPlace, joined
from agentrl.cluster.ray_cluster import ReservedCard, Room, connect, first_line, release, room
from agentrl.run import Policies
from agentrl.settings import Settings
from agentrl.trainer import Ranks

START_S = 300.0  # seconds that an actor may take to begin
STUCK_S = 30.0  # seconds that rank 0 may take to leave a collective operation in which it waits for a lost rank


class RankLost(KeyboardInterrupt):
    """Raised on rank 0 because another rank has ended.

    A signal handler raises this error in the main thread; `RayLearnerGroup.tell` raises it in the calling thread.
    """


class RayLearnerGroup(LearnerGroup):
    """See `LearnerGroup`; the other ranks are actors that this class starts, watches and ends.

    Raises:
        ValueError: Ray is not installed, cannot be started or reached, or lacks resources for the processes.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._ray: Any = None
        self._room: Room | None = None
        self._holder: Any = None
        self._followers: list[_RayFollower] = []
        self._lost: _RayFollower | None = None
        self._closing = threading.Event()
        self._noticed = threading.Event()
        self._handler: Any = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        consequence = isinstance(error, RankLost | RuntimeError | OSError)
        super().__exit__(kind, error, trace)
        if self._lost is not None and consequence:
            raise ValueError(
                f"{self._lost.how_it_ended()}; agentrl ended the other processes; continue with --resume"
            ) from None

    def start(self) -> Ranks:
        """See `LearnerGroup`."""
        size, cluster = self.config.processes, self.cluster
        self._ray = connect(cluster, self.config)
        try:
            host = self._ray.util.get_node_ip_address()
            self._room = room(self._ray, self.settings, self.device.type)
            self._holder = self._actor(ReservedCard, 0).remote()  # keeps the CPU and the GPU of rank 0
            store = dist.TCPStore(host, 0, size, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
            where = (host, store.port, size, self.device.type, cluster.address == "local")
            for rank in range(1, size):
                actor = self._actor(FollowingActor, rank).remote(rank, *where)
                self._followers.append(_RayFollower(self._ray, actor, rank))
            self._watch_all()
            card = self._card()
            self._ranks = joined(self.device, RankPlace(0, size, card), store, alone=cluster.address == "local")
            for follower in self._followers:
                follower.await_ready(START_S)
            return self._ranks
        except BaseException:
            self._leave()
            raise

    def tell(self, message: RankMessage) -> None:
        """See `LearnerGroup`. The graph and the credit go through Ray's object store.

        Raises:
            RankLost: another rank has ended.
        """
        if self._lost is not None:
            raise RankLost
        graph, credit = (None if one is None else self._ray.put(one) for one in (message.graph, message.credit))
        for follower in self._followers:
            follower.actor.carry_out.remote(message.call, dict(message.values), graph, credit)

    def pids(self) -> list[int]:
        """Process ids of the actors."""
        found: list[int] = self._ray.get([follower.actor.pid.remote() for follower in self._followers])
        return found

    def _card(self) -> int:
        """The number of this process's GPU."""
        try:
            card: int = self._ray.get(self._holder.card.remote(), timeout=START_S)
        except self._ray.exceptions.RayError as error:
            raise ValueError(
                f"the Ray cluster at cluster.address = {self.cluster.address!r} starts no actor on this machine "
                f"({first_line(error)}): look at the cluster (ray status)"
            ) from None
        return card

    def _actor(self, kind: type, rank: int) -> Any:
        """The class `kind` as a Ray actor class whose actors are placed in the bundle of a rank."""
        assert self._room is not None
        place = self._room.at(self._ray, rank)
        gpus = 1 if self.device.type == "cuda" else 0
        options = {"num_cpus": 1, "num_gpus": gpus, "scheduling_strategy": place, "max_restarts": 0}
        groups = {"concurrency_groups": {"watch": 1}} if kind is FollowingActor else {}
        return self._ray.remote(**options, **groups)(kind)

    def _check_started(self) -> None:
        """Nothing to check: this class starts the other ranks."""

    def _watch_all(self) -> None:
        """Watch the actors. The thread that trains must call this method.

        If the calling thread is the main thread, the end of an actor interrupts it. Other threads cannot be
        interrupted; they notice the end of an actor in the next `tell`.
        """
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGUSR1, _raise_lost)
        for follower in self._followers:
            threading.Thread(target=self._watch, args=(follower, threading.get_ident()), daemon=True).start()

    def _watch(self, follower: "_RayFollower", main: int) -> None:
        """Interrupt rank 0 when an actor ends before the run. If rank 0 still runs `STUCK_S` later, end it."""
        follower.wait()
        if self._closing.is_set():
            return
        self._lost = self._lost or follower
        self._noticed.set()
        time.sleep(1.0)  # rank 0 may be about to end for the same reason, with a message of its own
        if not self._closing.is_set() and self._handler is not None:
            signal.pthread_kill(main, signal.SIGUSR1)
        if not self._closing.wait(STUCK_S):
            print(f"agentrl: {follower.how_it_ended()}; the run was ended", file=sys.stderr, flush=True)
            os._exit(2)  # a collective operation on a GPU does not notice that a rank is gone

    def _await_end(self) -> None:
        """Give the watching threads time to notice which actor has ended."""
        self._noticed.wait(PATIENCE_S)

    def _close(self, *, quickly: bool) -> None:
        self._closing.set()
        for follower in self._followers:
            follower.end(0.0 if quickly else PATIENCE_S)
        super()._close(quickly=quickly)
        if self._handler is not None:
            signal.signal(signal.SIGUSR1, self._handler)
        self._leave()

    def _leave(self) -> None:
        if self._ray is not None:
            if self._holder is not None:
                with suppress(Exception):  # if the cluster is gone, there is no actor to end
                    self._ray.kill(self._holder)
            release(self._ray)
            self._ray = self._room = None


class _RayFollower:
    """A rank above 0, as an actor."""

    def __init__(self, ray: Any, actor: Any, rank: int) -> None:
        self.actor, self.rank, self._ray, self._words = actor, rank, ray, "ended"
        self._alive = actor.stay.options(concurrency_group="watch").remote()

    def await_ready(self, seconds: float) -> None:
        """Wait until the rank has joined the process group.

        Raises:
            ValueError: the rank ended before it joined, or did not join in `seconds`.
        """
        try:
            self._ray.get(self.actor.pid.remote(), timeout=seconds)
        except Exception as error:  # noqa: BLE001  any error means that the rank did not begin
            raise ValueError(f"process {self.rank} of the learner did not begin: {first_line(error)}") from None

    def wait(self) -> None:
        """Wait until the rank has failed or ended, then kill its actor, so that the other ranks notice."""
        try:
            self._words = f"ended: {self._ray.get(self._alive)}"
        except Exception as error:  # noqa: BLE001  any error means that the rank was lost
            self._words = f"was lost: {first_line(error)}"
        self._kill()

    def how_it_ended(self) -> str:
        """Text for a message: how the rank ended, with the first line of its error."""
        return f"process {self.rank} of the learner {self._words}"

    def end(self, seconds: float) -> None:
        """Wait at most `seconds` for the calls that the actor still has to carry out, then kill the actor."""
        if seconds:
            with suppress(Exception):
                self._ray.get(self.actor.pid.remote(), timeout=seconds)
        self._kill()

    def _kill(self) -> None:
        with suppress(Exception):  # the actor has ended already, or the cluster is gone
            self._ray.kill(self.actor)


class FollowingActor:
    """A rank above 0: it holds its parts of the policies and carries out the calls of rank 0 one by one."""

    def __init__(self, rank: int, host: str, port: int, size: int, device: str, alone: bool) -> None:
        self._failed, self._words = threading.Event(), ""
        self._policies: Policies | None = None
        store = dist.TCPStore(  # type: ignore[attr-defined]
            host, port, size, is_master=False, timeout=timedelta(seconds=START_S)
        )
        self._ranks = joined(torch.device(device), RankPlace(rank, size, 0), store, alone=alone)

    def carry_out(self, call: str, values: dict[str, Any], graph: Any, credit: Any) -> None:
        """Call the method of `Policies` that rank 0 names, with these arguments; see `RankMessage`."""
        try:
            if call == "begin":
                self._policies = begun(values, self._ranks)
            elif call != "end":
                assert self._policies is not None
                carry_out(self._policies, RankMessage(call=call, values=values, graph=graph, credit=credit))
        except BaseException as error:
            self._words = first_line(error)
            self._failed.set()
            raise

    def pid(self) -> int:
        """The id of the actor's process. The call returns when the rank has joined and all earlier calls are done."""
        return os.getpid()

    def stay(self) -> str:
        """Wait until a call fails, then return the first line of its error. If no call fails, the wait never ends."""
        self._failed.wait()
        return self._words


def _raise_lost(signum: int, frame: FrameType | None) -> None:
    raise RankLost
