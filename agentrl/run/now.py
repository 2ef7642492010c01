"""Writes now.json, which tells `agentrl watch` what a run does at this moment. A resumed run does not read the file."""

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

EVERY_S = 1.0  # shortest time between two writes inside a phase


class Now:
    """Writes now.json at every change of phase, and at most once per second while episodes end.

    Errors of writing, for example because the disk is full, are ignored. The file is removed when the run is closed. If
    the run is killed, the file remains and tells what the run was doing.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[str, Any] = {}
        self._written = 0.0

    def begin(self, work: str, step: int, of: int, episodes: int) -> None:
        """Set the piece of work that begins now. The next call of `phase` writes it to the file.

        Args:
            work: cloning, training, or the name of an evaluation.
            step: number of the iteration, or of the update of the warm-up, from 0. For an evaluation, this is the
                number of iterations or updates that are done.
            of: number of all iterations or updates; 0 for an evaluation.
            episodes: number of episodes that this work is expected to play.
        """
        named = {"work": work, "step": step, "of": of, "episodes_due": episodes}
        self._values = {**named, "phase": "", "since": time.time(), "episodes": 0, "succeeded": 0, "tokens": 0}

    def phase(self, name: str) -> None:
        """Note that this phase of the work begins."""
        self._values |= {"phase": name, "phase_since": time.time()}
        self._write()

    def episode(self, record: Any) -> None:
        """Count an episode that has ended, its success, and the tokens of its answers."""
        values = self._values
        if not values:
            return
        values["episodes"] += 1
        values["succeeded"] += bool(record.success)
        values["tokens"] += sum(len(step.generation.token_ids) for step in record.steps)
        if time.monotonic() - self._written >= EVERY_S:
            self._write()

    def close(self) -> None:
        """Remove the file, because the run is closed."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        self._written = time.monotonic()
        part = self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
        with suppress(OSError):
            part.write_text(json.dumps(self._values))
            os.replace(part, self._path)
