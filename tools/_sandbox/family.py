"""The processes of one sandbox as the host's /proc shows them: found, frozen, counted, killed."""

import os
import select
import signal
from collections.abc import Iterator
from contextlib import suppress

from agentrl.tools._sandbox.launch import Limits, Plan

PAGE = os.sysconf("SC_PAGE_SIZE")
ROUNDS = 200  # of killing children that go on making children


class Family:
    """What descends from a started sandbox.

    Between two cells the loop's process is stopped and its children are killed, so an idle session burns no
    processor time, whatever threads it left. `loop` is the process that runs cells, `reaper` its parent inside.
    """

    def __init__(self, plan: Plan, started: int, info: int) -> None:
        self._plan, self._started = plan, started
        self.reaper = _child_pid(info) if info >= 0 else started
        found = children(self.reaper)
        self.loop = found[0] if found else self.reaper
        self._frozen = False

    def thaw(self) -> None:
        """Let the loop run."""
        if self._frozen:
            self._frozen = False
            with suppress(OSError):
                os.kill(self.loop, signal.SIGCONT)

    def freeze(self) -> None:
        """Kill what the cell left running, and stop the loop until it is asked again."""
        if not self._plan.tamed:
            return
        with suppress(OSError):
            os.kill(self.loop, signal.SIGSTOP)
            self._frozen = True
        for _ in range(ROUNDS):
            left = [pid for pid in self._members() if pid != self.loop and _state(pid) != "Z"]
            if not left:
                break
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def _members(self) -> list[int]:
        """The loop and everything below it or adopted by the reaper, from the host's view."""
        return list(descendants(self.reaper)) if self.reaper != self.loop else [self.loop, *descendants(self.loop)]

    def excess(self, limits: Limits) -> str:
        """What the processes together have too much of, in words; empty if nothing."""
        if not self._plan.tamed:
            return ""
        resident = sum(_resident(pid) for pid in self._members())
        if resident > limits.total_mb << 20:
            return f"the processes held {resident >> 20} MB of memory, the limit is {limits.total_mb} MB"
        count, size = self._files()
        if count > limits.files:
            return f"there were {count} files, the limit is {limits.files}"
        if size > limits.disk_mb << 20:
            return f"the files had {size >> 20} MB, the limit is {limits.disk_mb} MB"
        return ""

    def _files(self) -> tuple[int, int]:
        """How many files there are, and their bytes where no file system bounds them."""
        if self._plan.supervised:
            return _measure(self._plan.folder)
        count = 0
        for folder in ("/work", "/tmp", "/dev/shm") if self._plan.wants_info else ():
            with suppress(OSError):
                told = os.statvfs(f"/proc/{self.loop}/root{folder}")
                count += told.f_files - told.f_ffree
        return count, 0

    def kill(self) -> None:
        """Kill the loop and all below it, where no process namespace ends with its first process."""
        if self._plan.wants_info or not self._plan.tamed:
            return
        for pid in (self.loop, *descendants(self.loop)):
            if pid != self._started:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)


def _child_pid(info: int) -> int:
    """The process id bubblewrap tells on its info descriptor."""
    text = b""
    while b"}" not in text:
        if not select.select([info], [], [], 5)[0]:
            break
        part = os.read(info, 4096)
        if not part:
            break
        text += part
    digits = text.partition(b'"child-pid":')[2].strip().split(b"\n")[0].strip(b" ,}")
    return int(digits)


def children(pid: int) -> list[int]:
    """The children of all threads of a process."""
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb", buffering=0) as file:
                found += map(int, (file.read() or b"").split())
    return found


def descendants(pid: int) -> Iterator[int]:
    """Every process below one."""
    for child in children(pid):
        yield child
        yield from descendants(child)


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return "Z"


def _resident(pid: int) -> int:
    """Bytes of resident memory."""
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def _measure(folder: str) -> tuple[int, int]:
    """Files below a folder and their bytes on disk, no link followed."""
    count = size = 0
    waiting = [folder]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    told = entry.stat(follow_symlinks=False)
                    count, size = count + 1, size + told.st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return count, size
