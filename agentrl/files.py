"""Reads files that a user names, and writes a file or a folder completely or not at all."""

import errno
import json
import math
import os
import shutil
import stat
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

MOST_DIGITS = 300  # of a whole number in a JSON file
MOST_TOML = 10_000_000  # largest number of bytes of a TOML file
KINDS: Mapping[Callable[[int], bool], str] = MappingProxyType(
    {
        stat.S_ISDIR: "a folder: name the file in it",
        stat.S_ISFIFO: "a pipe: write what it gives into a file, and name this file",
        stat.S_ISSOCK: "a socket: name a file",
        stat.S_ISCHR: "a device: name a file",
        stat.S_ISBLK: "a device: name a file",
    }
)  # test of a file's mode -> what it is, and what to do


def regular(path: Path, *, whole: bool = False) -> Path:
    """The path, if reading it ends: a regular file, or nothing at all (whoever reads says that it is missing).

    Args:
        path: the path.
        whole: the file is read into memory as a whole.

    Raises:
        ValueError: the path leads to a folder, a pipe, a socket or a device, reading which may never end; the file may
            not be read; or it is read as a whole and is too large (see `check_memory`).
    """
    try:
        found = path.stat()
    except (OSError, ValueError):
        return path
    for is_such, words in KINDS.items():
        if is_such(found.st_mode):
            raise ValueError(f"{path} is {words}")
    if not os.access(path, os.R_OK):
        raise ValueError(f"cannot read {path}: Permission denied")
    if whole:
        check_memory(found.st_size, path)
    return path


def listed(folder: Path, pattern: str) -> list[Path]:
    """The paths in a folder whose names match a pattern, sorted; none if the folder is missing.

    Raises:
        ValueError: the folder may not be read. `Path.glob` finds nothing in such a folder, so its content would seem to
            be missing.
    """
    try:
        os.scandir(folder).close()
    except PermissionError as error:
        raise ValueError(f"cannot read the folder {folder}: {error.strerror}") from None
    except OSError:
        return []
    return sorted(folder.glob(pattern))


def check_memory(size: int, path: Path) -> None:
    """Raises ValueError if the content of a file, `size` bytes, takes more than a quarter of the machine's memory."""
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    if size > most:
        raise ValueError(
            f"{path} holds {size / 1e9:.1f} GB or more, and at most a quarter of this machine's memory "
            f"({most / 1e9:.1f} GB) is read: give a smaller file"
        )


class NotHere(ValueError):
    """A file, folder, package or variable that a user names is missing on this machine, and another may have it.

    `agentrl train --dry-run` notes such an error, because a recipe may be written for another machine. It refuses every
    other ValueError, because the recipe would be wrong on each machine.
    """


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; ValueError with one sentence if it is missing or broken."""
    try:
        size = regular(path).stat().st_size
        if size > MOST_TOML:
            raise ValueError(f"it has {size:,} bytes, and at most {MOST_TOML:,} are read")
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise NotHere(f"no such file: {path}") from None
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not TOML: it is no UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        place = str(error).startswith((f"{path} is ", "cannot read "))  # the path is no file, or no file to be read
        raise ValueError(str(error) if place else f"{path} is not TOML: {error}") from None


def read_text(path: Path, what: str) -> str:
    """The text of a file that a user names; ValueError with one sentence if it is missing or not UTF-8."""
    if not regular(path, whole=True).is_file():
        raise NotHere(f"no such {what}: {path}")
    try:
        return path.read_text("utf-8-sig")  # some editors write a byte order mark before the text
    except UnicodeDecodeError:
        raise ValueError(f"the {what} {path} is not UTF-8 text") from None
    except OSError as error:
        raise ValueError(f"cannot read the {what} {path}: {error.strerror or error}") from None


def whole_number(digits: str) -> int:
    """The whole number of a JSON text (`parse_int` of `json.loads`); ValueError if no float can hold it."""
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits, and the limit is {MOST_DIGITS}")
    return int(digits)


def read_json(path: Path, what: str) -> Any:
    """The value of a JSON file that a user names; ValueError with one sentence if it is missing or not JSON."""
    text = read_text(path, what)
    try:
        return json.loads(text, parse_int=whole_number)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None


def for_json(value: Any) -> Any:
    """A value of mappings and lists, with None in place of infinity and NaN, which JSON does not have."""
    if isinstance(value, Mapping):
        return {str(name): for_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [for_json(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_jsonl(path: Path, what: str) -> Iterator[tuple[int, Any]]:
    """(line number from 1, value) of each line of a JSONL file that a user names; blank lines are skipped.

    Only "\\n" ends a line: a JSON string may hold U+2028 and U+0085, at which `str.splitlines` would cut it.

    Raises:
        ValueError: the file is missing, or a line is not JSON. In the second case the message names the line, too.
    """
    if not regular(path, whole=True).is_file():
        raise NotHere(f"no such {what}: {path}")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                if not text.strip():
                    continue
                value = json.loads(text, parse_int=whole_number)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"line {number} of {path} is not JSON: {error}") from None
            yield number, value


def remove_remnants(folder: Path) -> None:
    """Remove the temporary files (`.NAME.PID.part`) that killed processes left in a folder during `write_atomically`.

    Files of other living processes stay. Files with the id of this process are remnants of an earlier process with the
    same id (which is common in containers), because the caller does not write during this call.
    """
    for part in folder.glob(".*.part"):
        writer = part.name.split(".")[-2]
        if writer.isdecimal() and (int(writer) == os.getpid() or not process_exists(int(writer))):
            part.unlink(missing_ok=True)


def process_exists(process: int) -> bool:
    """Does a process with this id run, of any user?"""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # a process of another user
        return True
    return True


def flush_to_disk(path: Path) -> None:
    """Wait until a file, or a folder with its content, is stored on the disk; missing files are ignored.

    A rename may reach the disk before the content of the renamed file does. A power cut would then leave an empty file
    under the final name.
    """
    inside = sorted(path.rglob("*")) if path.is_dir() else []
    for one in [*inside, path]:
        with suppress(FileNotFoundError):
            if one.is_dir():
                flush_entries(one)
                continue
            descriptor = os.open(one, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def flush_entries(folder: Path) -> None:
    """Wait until the entries of a folder, such as the new name of a renamed file, are stored on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems refuse to flush a folder
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a temporary file beside the target, then rename it: if the disk is full, the old file stays as it was.

    Raises:
        ValueError: the file cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        reason = error.strerror or error
        raise ValueError(f"cannot write {path}: {reason}; free some space or choose another folder") from error


@contextmanager
def appearing(target: Path) -> Iterator[Path]:
    """A path at which the block makes a folder; when the block ends, this folder becomes `target` or replaces it.

    If the block fails, the partial folder is removed, and an older `target` is unchanged. If the process is killed
    while the new folder replaces an older one, the next call for the same `target` brings the older one back.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial, previous = target.with_name(f".{target.name}.partial"), target.with_name(f".{target.name}.previous")
    shutil.rmtree(partial, ignore_errors=True)
    if previous.exists() and not target.exists():  # a process was killed between the two renames below
        previous.rename(target)
    try:
        yield partial
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if "(os error " in str(error):  # tokenizers and safetensors report a full disk in such a text
            raise OSError(str(error)) from error
        raise
    if target.exists():
        shutil.rmtree(previous, ignore_errors=True)
        target.rename(previous)
    partial.rename(target)
    shutil.rmtree(previous, ignore_errors=True)


def recover_folders(parent: Path) -> None:
    """Tidy up in a folder after `appearing` calls whose process was killed: no partial folder is left, and a folder
    that was about to be replaced is there again. No process may be writing there."""
    for previous in sorted(parent.glob(".*.previous")):
        target = parent / previous.name[1:].removesuffix(".previous")
        if target.exists():
            shutil.rmtree(previous, ignore_errors=True)
        else:
            previous.rename(target)
    for partial in sorted(parent.glob(".*.partial")):
        shutil.rmtree(partial, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Delete a folder as a whole: if the process is killed meanwhile, `recover_folders` removes the rest.

    Raises:
        OSError: the folder is missing, or it cannot be deleted. It is complete then.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    folder.rename(partial)
    shutil.rmtree(partial, ignore_errors=True)


def refuse_existing(folder: Path) -> None:
    """Raises ValueError if a file or folder of this name exists, because exports never overwrite."""
    if folder.exists() or folder.is_symlink():
        raise ValueError(f"{folder} exists: choose another folder, or remove this one")


@contextmanager
def temporary_beside(folder: Path) -> Iterator[Path]:
    """An empty folder beside `folder`, so on the same disk. It is removed when the block ends.

    Raises:
        ValueError: the disk is full, or the folder cannot be written.
    """
    with _writable(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
            yield Path(scratch)


@contextmanager
def writing(folder: Path) -> Iterator[Path]:
    """A path to write to, which becomes `folder` when the block ends without an error.

    Raises:
        ValueError: the disk is full, or the folder cannot be written.
    """
    with _writable(folder), appearing(folder) as partial:
        yield partial


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Turn an OSError of the block, such as a full disk, into a ValueError that names the folder."""
    try:
        yield
    except OSError as error:
        full = error.errno == errno.ENOSPC or "(os error 28)" in str(error)
        reason = os.strerror(errno.ENOSPC) if full else error.strerror or str(error)
        raise ValueError(f"cannot write {folder}: {reason}; free some space or choose another folder") from error
