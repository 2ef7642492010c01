"""The processes that share a run's learners. Unless torchrun starts them, this module starts, watches and ends them.

Rank 0 is the run itself. The other ranks are followers (`agentrl.cluster.ranks`): they hold their parts of the policies
and do what rank 0 says. A follower that agentrl starts without [cluster] is a child process in its own session, with a
pipe from rank 0. The pipe is closed whenever rank 0 ends, also by a kill; the follower then ends too. If a follower
ends before the run, the run ends with an error.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist

from agentrl.settings import Settings
from agentrl.trainer import LearnerConfig, Ranks

if TYPE_CHECKING:
    from agentrl.cluster.ranks import Message

READY = b"ready\n"  # a follower writes this line when it has imported everything
START_S = 300.0  # seconds that a follower may take to begin
PATIENCE_S = 5.0  # seconds that a follower may take to end by itself
STUCK_S = 30.0  # seconds that rank 0 may take to leave a collective operation in which it waits for a lost rank
BROKEN = re.compile(r"gloo|NCCL|connection (closed|reset)|process group|ProcessGroup|recvValue", re.I)


class Place(NamedTuple):
    """The place of a process of the learner: its rank, the number of ranks, and its GPU's number on the machine."""

    rank: int
    size: int
    local: int

    @classmethod
    def found(cls, environment: Mapping[str, str] = os.environ) -> "Place | None":
        """The place of this process; None if RANK or WORLD_SIZE, which torchrun sets, is not in the environment.

        Raises:
            ValueError: RANK, WORLD_SIZE or LOCAL_RANK is no whole number.
        """
        if "RANK" not in environment or "WORLD_SIZE" not in environment:
            return None
        try:
            rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
            place = cls(rank, size, int(environment.get("LOCAL_RANK", rank)))
        except ValueError:
            raise ValueError(
                "RANK, WORLD_SIZE and LOCAL_RANK are set in the environment, but not to whole numbers: start the run "
                "with torchrun, or unset them"
            ) from None
        return place


class RankLost(KeyboardInterrupt):
    """Raised on rank 0 because another rank has ended.

    A signal handler raises this error in the main thread; `LearnerGroup.check` raises it in the calling thread.
    """


class LearnerGroup:
    """The processes of a run's learners, as a context manager: `start` starts them, and `__exit__` ends them.

    Args:
        settings: the run's settings.

    Raises:
        ValueError: the run cannot have these processes on this machine; see `check_group`.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings, self.config, self.cluster = settings, settings.tables.learner, settings.tables.cluster
        self.place = Place.found()
        self.device = check_group(settings, self.place)
        self._followers: list[Any] = []
        self._store: Path | None = None
        self._lost: Any = None
        self._ranks = Ranks()
        self._closing = False
        self._handler: Any = None

    def __enter__(self) -> "LearnerGroup":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        broken = any(isinstance(one, RuntimeError | OSError) and BROKEN.search(str(one)) for one in _causes(error))
        if broken and self._followers:  # wait until a thread has noticed which rank ended
            self._wait(lambda: self._lost is not None, PATIENCE_S)
        lost = self._lost
        self._close(quickly=error is not None)
        if lost is not None and (broken or isinstance(error, RankLost)):
            raise ValueError(
                f"{lost.how_it_ended()}; agentrl ended the other processes; continue with --resume"
            ) from None
        if broken and self.place is not None:
            raise ValueError(
                f"another process of the learner has ended ({_first_line(error)}): read the end of its output, and "
                "start torchrun again with --resume"
            ) from None

    def start(self) -> Ranks:
        """Start the other processes, unless torchrun has started them, and form the process group with them.

        Raises:
            ValueError: a process could not begin.
        """
        if not self.config.divided:
            return Ranks()
        if self.place is not None and self.place.size > 1:
            self._ranks = joined(self.device, self.place)
            return self._ranks
        self._store = Path(tempfile.mkdtemp(prefix="agentrl-ranks-"))
        size = self.config.processes
        for rank in range(1, size):
            self._followers.append(_Follower(rank, size, self._store / "store", self.device))
        for follower in self._followers:
            follower.await_ready(START_S)
        self._look_after_followers()
        self._ranks = joined(self.device, Place(0, size, 0), self._store / "store")
        return self._ranks

    def tell(self, message: "Message") -> None:
        """Send a message to the other ranks, which then carry it out.

        Raises:
            RankLost: another rank has ended.
        """
        self.check()
        self._ranks.broadcast(message.encoded())

    def _look_after_followers(self) -> None:
        """Watch the followers. The thread that trains must call this method.

        If the calling thread is the main thread, the end of a follower interrupts it. Other threads cannot be
        interrupted; they notice the end of a follower when they call `check`.
        """
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGUSR1, _raise_lost)
        for follower in self._followers:
            threading.Thread(target=self._watch, args=(follower, threading.get_ident()), daemon=True).start()

    def check(self) -> None:
        """Raises RankLost if a follower has ended."""
        if self._lost is not None:
            raise RankLost

    def _watch(self, follower: Any, main: int) -> None:
        """Interrupt rank 0 when a follower ends before the run. If rank 0 still runs `STUCK_S` later, end it."""
        follower.wait()
        if self._closing:
            return
        self._lost = self._lost or follower
        time.sleep(1.0)  # rank 0 may be about to end for the same reason, with a message of its own
        if not self._closing and self._handler is not None:
            signal.pthread_kill(main, signal.SIGUSR1)
        if not self._wait(lambda: self._closing, STUCK_S):
            print(f"agentrl: {follower.how_it_ended()}; the run was ended", file=sys.stderr, flush=True)
            os._exit(2)  # a collective operation on a GPU does not notice that a rank is gone

    @staticmethod
    def _wait(condition: Any, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def _close(self, *, quickly: bool) -> None:
        """End the followers and leave the process group, without waiting for the followers if `quickly`."""
        self._closing = True
        for follower in self._followers:
            follower.end(0.0 if quickly else PATIENCE_S)
        if dist.is_initialized() and (not quickly or self.device.type == "cpu"):
            with suppress(RuntimeError):
                dist.destroy_process_group()
        if self._handler is not None:
            signal.signal(signal.SIGUSR1, self._handler)
        if self._store is not None:
            shutil.rmtree(self._store, ignore_errors=True)


class _Follower:
    """A rank above 0 on this machine."""

    def __init__(self, rank: int, size: int, store: Path, device: torch.device) -> None:
        self.rank = rank
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by `end`
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agentrl.cluster.ranks", str(store), str(rank), str(size), device.type],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            start_new_session=True,  # Ctrl-C then reaches only rank 0, which ends the other ranks
        )

    def await_ready(self, seconds: float) -> None:
        """Wait until the follower has imported everything.

        Raises:
            ValueError: the follower ended before it was ready, or was not ready in `seconds`.
        """
        assert self.process.stdout is not None
        watch = threading.Timer(seconds, self.process.kill)
        watch.start()
        ready = self.process.stdout.readline()
        watch.cancel()
        if ready != READY:
            self.process.wait()
            raise ValueError(self.how_it_ended())

    def wait(self) -> None:
        """Wait until the process ends."""
        self.process.wait()

    def how_it_ended(self) -> str:
        """Text for a message: the signal that killed the follower, its last line of errors, or its exit code."""
        code = self.process.poll()
        if code is not None and code < 0:
            with suppress(ValueError):
                return f"process {self.rank} of the learner was killed by {signal.Signals(-code).name}"
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        words = f": {lines[-1][:400]}" if lines else f" with exit code {code}"
        return f"process {self.rank} of the learner ended{words}"

    def end(self, seconds: float) -> None:
        """Wait at most `seconds` for the follower to end, then close the pipe.

        A follower that still runs 1 s later is killed.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        if seconds:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
        with suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self._errors.close()


def group_of(settings: Settings) -> LearnerGroup:
    """The processes of a run's learners: child processes, processes of torchrun, or actors of [cluster].

    Raises:
        ValueError: the run cannot have these processes on this machine; see `check_group`.
    """
    tables = settings.tables
    if not tables.cluster.address or tables.learner.processes == 1 or Place.found() is not None:
        return LearnerGroup(settings)
    from agentrl.cluster.ray_learners import RayLearnerGroup  # imports Ray, which is optional

    return RayLearnerGroup(settings)


def joined(device: torch.device, place: Place, store: Any = None, *, alone: bool = True) -> Ranks:
    """Join the process group.

    Args:
        device: the device on which this rank computes.
        place: this rank's place.
        store: the place where the ranks find each other: a file on this machine or a store of torch. If it is None,
            torchrun's environment variables name the place.
        alone: whether all ranks are on this machine; without a store, this argument is not read.
    """
    if device.type == "cuda":
        torch.cuda.set_device(place.local)
    if store is not None and alone and any(name == "lo" for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on this machine
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    if store is None:
        dist.init_process_group(backend)
    else:
        if isinstance(store, Path):
            store = dist.FileStore(str(store), place.size)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.size)
    return Ranks(grouped=True)


def check_group(settings: Settings, place: Place | None) -> torch.device:
    """The device on which the processes of [learner] compute. If the learner is divided, `cuda` has no number.

    Raises:
        ValueError: this machine, this version of torch or another section of the recipe does not allow the options of
            [learner].
    """
    config: LearnerConfig = settings.tables.learner
    if place is not None and place.size not in (1, config.processes):
        raise ValueError(
            f"torchrun started {place.size} processes, and learner.processes is {config.processes}: set "
            f"learner.processes={place.size}, or start the run without torchrun"
        )
    device = _device(settings)
    if not config.divided:
        return device
    _check_torch()
    local = int(os.environ.get("LOCAL_WORLD_SIZE", config.processes)) if place else config.processes
    if settings.tables.cluster.address and place is None:
        local = 1  # the other processes get their GPUs from Ray
    if device.type == "cuda":
        if device.index is not None:
            raise ValueError(
                f"model.device={device} is one GPU, and each process of learner.processes={config.processes} takes a "
                "GPU of its own: set model.device=cuda"
            )
        if not dist.is_nccl_available():
            raise ValueError(
                f"learner.processes={config.processes} on GPUs needs NCCL, which this build of torch does not have: "
                "install torch's CUDA build for Linux, or set learner.processes=1"
            )
        if local > torch.cuda.device_count():
            raise ValueError(
                f"learner.processes={config.processes} needs a GPU for each process, and torch finds "
                f"{torch.cuda.device_count()} here: set learner.processes={max(1, torch.cuda.device_count())}"
            )
    for entry in settings.regularizers:
        if config.processes > 1 and hasattr(entry.hooks.make(entry.config), "state_dict") and not entry.hooks.totals:
            raise ValueError(
                f"the regularizer {entry.name} keeps a history and does not say that it sums the history over "
                "processes (with Moment.total, and TOTALS = True in its file): set learner.processes=1"
            )
    return device


def _check_torch() -> None:
    """Raises ValueError if this version of torch lacks a part that a divided learner needs."""
    if not dist.is_available() or not dist.is_gloo_available():
        raise ValueError("learner.processes needs torch.distributed with gloo, which this build of torch does not have")
    try:
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader  # noqa: F401
        from torch.distributed.fsdp import FSDPModule

        known = hasattr(FSDPModule, "set_force_sum_reduction_for_comms")
    except ImportError:
        known = False
    if not known:
        raise ValueError(f"learner.processes needs torch 2.9 or newer, this is {torch.__version__}: upgrade torch")


def _device(settings: Settings) -> torch.device:
    """The device of the policies' models."""
    names = {plan.model.device for plan in settings.policies.values()}
    if settings.tables.learner.divided and len(names) > 1:
        raise ValueError(
            f"learner.processes divides every policy over the same processes, and the policies have the devices "
            f"{', '.join(sorted(names))}: give all policies the same model.device"
        )
    name = next(iter(names))
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.device(name)
    except RuntimeError:
        raise ValueError(f"model.device is {name!r}: use auto, cpu, cuda or cuda:N") from None


def _raise_lost(signum: int, frame: FrameType | None) -> None:
    raise RankLost


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, then the error that caused it (`__cause__`), and so on."""
    while error is not None:
        yield error
        error = error.__cause__


def _first_line(error: BaseException | None) -> str:
    return " ".join(str(error).split())[:120]
