"""A process that runs `agentrl train`, tells the campaign its stage, and may kill itself at a file operation."""

import json
import mmap
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

WIDTH = 32  # bytes of the marker
UP, BEGAN, HIT = b"up", b"began", b"hit"  # messages to the campaign


class Aim(NamedTuple):
    """When a process is to be killed.

    Attributes:
        what: `start` (while it opens the run), `time` (after it has begun to roll out), or a kind of file:
            `checkpoint`, `graph`, `metrics` or `evaluation`.
        after_s: seconds after `train` was entered, after the first rollout began, or after the file operation; at 0 the
            process kills itself right before the operation.
        number: which operation on this kind of file it is, counted from 1.
    """

    what: str = ""
    after_s: float = 0.0
    number: int = 0


def kind_of_file(path: str) -> str:
    """The kind of a file of a run folder; empty for files that are only written when the run is opened."""
    if "/checkpoints/" in path:
        return "checkpoint"
    if "/graphs/" in path:
        return "graph"
    if "/evaluations/" in path:
        return "evaluation"
    return "metrics" if path.endswith(("metrics.jsonl", "timings.jsonl")) else ""


def written_path(event: str, arguments: Sequence[Any]) -> str:
    """The path of an audit event that writes a file, or that opens a partial file (`part` in its name); else empty."""
    if event not in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree"):
        return ""
    path = arguments[0]
    if not isinstance(path, str | os.PathLike):
        return ""
    text = os.fspath(path)
    if event == "open":
        mode, flags = arguments[1], arguments[2]
        writes = bool({*(mode or "")} & {*"wax+"}) or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR))
        return text if writes or "part" in text else ""
    return text


class Watch:
    """Writes the current stage into the marker file, and carries out an aim at a file operation.

    Args:
        folder: of the run.
        marker: the marker file.
        aim: when to die.
        campaign: gets a message when the run begins to roll out, and when the operation of the aim is reached.
    """

    def __init__(self, folder: Path, marker: Path, aim: Aim, campaign: Connection) -> None:
        self._folder, self._aim, self._campaign = f"{folder}/", aim, campaign
        self._began = False
        self.operations: Counter[str] = Counter()
        with marker.open("r+b") as file:
            self._marker = mmap.mmap(file.fileno(), WIDTH)

    def mark(self, stage: str) -> None:
        """Write the stage into the marker file. It stays there even if the process is killed right afterwards."""
        self._marker[:] = stage.encode().ljust(WIDTH)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Called before each file operation."""
        path = written_path(event, arguments)
        if not path.startswith(self._folder):
            return
        kind = kind_of_file(path)
        if not kind:
            return
        self.mark(f"write {kind}")
        self.operations[kind] += 1
        if (kind, self.operations[kind]) == (self._aim.what, self._aim.number):
            self._strike()

    def _strike(self) -> None:
        if self._aim.after_s == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._campaign.send_bytes(HIT)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Note that a phase of the run begins."""
        if not self._began:
            self._began = True
            self._campaign.send_bytes(BEGAN)
        self.mark(name)
        try:
            yield
        finally:
            self.mark("between")


def train(words: Sequence[str], folder: Path, work: Path, aim: Aim, campaign: Connection) -> None:
    """Run `agentrl train WORDS` as a process of its own session, watched; its output goes to `work/log`.

    A process that ends by itself leaves the number of file operations of each kind in `work/operations.json`.

    Args:
        words: the command line's words after `train`.
        folder: the run's folder.
        work: holds `marker`, `log` and the folder `temporary`.
        aim, campaign: see `Watch`.
    """
    take_over(work / "log", work / "temporary", lambda: campaign.send_bytes(UP))
    watch = Watch(folder, work / "marker", aim, campaign)
    watch.mark("start")
    from agentrl.cli import main
    from agentrl.run.metrics import Stopwatch

    own = Stopwatch.phase

    @contextmanager
    def phase(stopwatch: Stopwatch, name: str) -> Iterator[None]:
        with watch.phase(name), own(stopwatch, name):
            yield

    Stopwatch.phase = phase  # type: ignore[method-assign]
    sys.addaudithook(watch.audit)
    sys.argv = ["agentrl", "train", *words]
    code = main()
    if code == 0:  # else it was stopped, and the marker says in which stage
        watch.mark("end")
    (work / "operations.json").write_text(json.dumps(watch.operations))
    sys.exit(code)


def take_over(log: Path, temporary: Path, up: Callable[[], None] = lambda: None) -> None:
    """Make this process the first one of a session, with an output and temporary files of its own.

    Args:
        log: the file to which its output is appended.
        temporary: the folder of its temporary files.
        up: called when signals end it as they end other programs.
    """
    os.setsid()
    # Until agentrl listens, both signals end the process, as they end other programs. A shell's background jobs ignore
    # Ctrl-C, and multiprocessing's fork server turns an interrupt before this place into exit code 1, without a word.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    up()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ["TMPDIR"], tempfile.tempdir = str(temporary), None


def session_members(session: int) -> list[int]:
    """The living processes of a session."""
    members = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                members.append(int(name))
    return members


def left_in_session(session: int, patience_s: float = 10.0) -> list[int]:
    """The processes of a session that are still there after `patience_s` seconds."""
    ends = time.monotonic() + patience_s
    while (members := session_members(session)) and time.monotonic() < ends:
        time.sleep(0.05)
    return members
