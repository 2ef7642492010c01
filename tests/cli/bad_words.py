"""Runs a command on bad input in this process, and says what is wrong with how it ends."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from agentrl.cli import main

MOST_CHARS = 1000  # of a sentence


def written(folder: Path) -> dict[Path, int]:
    """Every path below a folder, with the time of its last change."""
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}


def complaint(words: Sequence[str], folder: Path, capsys: Any, codes: Iterable[int] = (2,)) -> str:
    """What is wrong with the end of a command in its working folder; empty if it ends as it must.

    It must end with one of `codes`. With exit code 2 it prints one sentence on standard error, no traceback, nothing on
    standard output, and leaves the folder as it was.
    """
    before = written(folder)
    capsys.readouterr()
    try:
        code: Any = main(words)
    except BaseException as error:  # noqa: BLE001  every one of them is a failure to be listed
        code = f"{type(error).__name__}: {error}"[:200]
    out, said = capsys.readouterr()
    one = said.count("\n") == 1 and said.startswith("agentrl") and "Traceback" not in said and len(said) < MOST_CHARS
    if code not in codes:
        problem = f"exit code {code}"
    elif code != 2:
        return ""
    elif not one:
        problem = f"{said.count(chr(10))} lines, {len(said)} characters on standard error"
    elif out:
        problem = f"standard output has {out[:80]!r}"
    else:
        problem = "" if written(folder) == before else "the folder has changed"
    return problem and f"{tuple(word[:60] for word in words)}: {problem}: {said[-300:]!r}"
