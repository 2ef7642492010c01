"""Counts what processes and folders of a sandbox use, from outside, by the host's /proc and by open folders.

Hostile code can try to hide its use. If the main thread has ended, /proc shows no memory for the process; a folder
without rights hides its files; a deleted file occupies the disk as long as a process holds it.
"""

import os
import stat
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress

PAGE = os.sysconf("SC_PAGE_SIZE")
DEPTH = 64  # largest number of folders inside one another; a walk holds one descriptor per level
BLOCK = 512  # bytes of one block in st_blocks
FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Uncountable(Exception):
    """A part of the sandbox cannot be counted, so its limit counts as exceeded; the message names the part."""


class Tally:
    """The number of files and of their bytes on disk; counting stops beyond `most` files."""

    def __init__(self, most: int) -> None:
        self.most, self.count, self.size = most, 0, 0

    @property
    def full(self) -> bool:
        """Is the limit exceeded, so that counting can stop?"""
        return self.count > self.most


def children(pid: int) -> list[int]:
    """The children of all threads of a process."""
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb", buffering=0) as file:
                found += map(int, (file.read() or b"").split())
    return found


def descendants(pid: int) -> Iterator[int]:
    """Yields the ids of all descendants of a process."""
    for child in children(pid):
        yield child
        yield from descendants(child)


def alive(pid: int) -> bool:
    """Can any thread of a process run? The main thread may have ended before other threads."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            if file.read().rpartition(b")")[2].split()[0] not in b"ZX":
                return True
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except (OSError, IndexError):
        return False


def stopped(pid: int) -> bool:
    """Is every thread of a process stopped or ended?"""
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/stat", "rb", buffering=0) as file:
                if file.read().rpartition(b")")[2].split()[0] not in b"TtZX":
                    return False
    except (OSError, IndexError):
        return not os.path.exists(f"/proc/{pid}")
    return True


def resident(pid: int) -> int:
    """Bytes of resident memory."""
    return _pages(_view(pid)) * PAGE


def _view(pid: int) -> str:
    """The folder in /proc of a process or, if that shows no memory, of one of its threads that still shows it."""
    own = f"/proc/{pid}"
    if _pages(own):
        return own
    with suppress(OSError):
        for task in os.listdir(f"{own}/task"):
            if _pages(f"{own}/task/{task}"):
                return f"{own}/task/{task}"
    return own


def _pages(view: str) -> int:
    try:
        with open(f"{view}/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1])
    except (OSError, IndexError):
        return 0


def descriptors(pid: int) -> int:
    """How many files, pipes and sockets a process holds open."""
    folder = f"{_view(pid)}/fd"
    with suppress(OSError):
        return os.stat(folder).st_size or len(os.listdir(folder))  # Linux before 6.2 gives a size of zero
    return 0


def measure(folder: str, most: int) -> Tally:
    """Count the files below a folder and their bytes on disk, without following links, up to `most` files.

    If the owner of a folder has no rights to it, the rights are added.

    Raises:
        Uncountable: a folder lies too deep, or its rights are taken away again during the count.
    """
    tally = Tally(most)
    handle = _opened(folder, None)
    if handle >= 0:
        _walk(handle, 1, tally)
    return tally


def _walk(handle: int, depth: int, tally: Tally) -> None:
    """Count what is in the open folder `handle`, and close it."""
    try:
        if depth > DEPTH:
            raise Uncountable(f"folders were nested deeper than {DEPTH}, the limit")
        with os.scandir(handle) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    tally.count, tally.size = tally.count + 1, tally.size + found.st_blocks * BLOCK
                    child = _opened(entry.name, handle) if stat.S_ISDIR(found.st_mode) and not tally.full else -1
                    if child >= 0:
                        _walk(child, depth + 1, tally)
                if tally.full:
                    return
    except PermissionError:
        raise Uncountable("a folder was kept closed while its files were counted") from None
    finally:
        os.close(handle)


def _opened(name: str, parent: int | None) -> int:
    """An open descriptor of a folder; -1 if the folder is gone. PermissionError if its rights are taken away again."""
    try:
        try:
            handle = os.open(name, os.O_RDONLY | FOLDER, dir_fd=parent)
        except PermissionError:
            _open_up(name, parent)
            handle = os.open(name, os.O_RDONLY | FOLDER, dir_fd=parent)
    except (FileNotFoundError, NotADirectoryError):
        return -1
    mode = os.fstat(handle).st_mode
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(handle, stat.S_IMODE(mode) | stat.S_IRWXU)
    return handle


def _open_up(name: str, parent: int | None) -> None:
    """Give a folder's owner all rights. The folder is opened with O_PATH, which needs no rights to it."""
    handle = os.open(name, os.O_PATH | FOLDER, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{handle}", stat.S_IRWXU)
    finally:
        os.close(handle)


def add_deleted(tally: Tally, pids: Sequence[int], folder: str, largest: int) -> None:
    """Add deleted files that some processes still hold open or mapped.

    Args:
        tally: the count to which they are added.
        pids: the processes.
        folder: the folder in which the files were.
        largest: the bytes that are added for each file that is only mapped, because its size cannot be seen.

    Raises:
        Uncountable: a process does not show its files.
    """
    held: dict[tuple[int, int], int] = {}
    names: dict[str, set[tuple[int, int]]] = defaultdict(set)
    mapped: dict[str, set[bytes]] = defaultdict(set)
    for pid in pids:
        view = _view(pid)
        try:
            _deleted_open(view, held, names)
            _deleted_mapped(view, folder, mapped)
        except PermissionError:
            if _pages(view):  # a process that is ending has no pages, and soon no files
                raise Uncountable("a process hid its open files") from None
        except OSError:
            continue
    unseen = sum(max(0, len(inodes) - len(names[name])) for name, inodes in mapped.items())
    tally.count += len(held) + unseen
    tally.size += sum(held.values()) + unseen * largest


def _deleted_open(view: str, held: dict[tuple[int, int], int], names: dict[str, set[tuple[int, int]]]) -> None:
    for number in os.listdir(f"{view}/fd"):
        path = f"{view}/fd/{number}"
        with suppress(FileNotFoundError):
            found = os.stat(path)
            if stat.S_ISREG(found.st_mode) and not found.st_nlink:
                held[found.st_dev, found.st_ino] = found.st_blocks * BLOCK
                with suppress(OSError):  # the system may refuse a name of this length
                    names[os.readlink(path)].add((found.st_dev, found.st_ino))


def _deleted_mapped(view: str, folder: str, mapped: dict[str, set[bytes]]) -> None:
    with open(f"{view}/maps", "rb") as file:
        for line in file:
            parts = line.rstrip(b"\n").split(None, 5)
            name = os.fsdecode(parts[5]) if len(parts) == 6 else ""
            if name.endswith(" (deleted)") and name.startswith(f"{folder}/"):
                mapped[name].add(parts[3] + parts[4])
