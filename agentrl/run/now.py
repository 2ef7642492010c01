"""What a run does at this moment, in the file now.json, for those who watch it. Nothing reads it to go on."""

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

EVERY_S = 1.0  # between two writings inside a phase


class Now:
    """Writes now.json at every change of phase, and at most once per second while episodes end.

    A full disk does not matter here. The file is removed when the run is closed; after a kill it tells what the run
    was doing.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[str, Any] = {}
        self._written = 0.0

    def begin(self, work: str, step: int, of: int, episodes: int) -> None:
        """A new piece of work.

        Args:
            work: cloning, training, or the name of an evaluation.
            step: its number in the stage, from 0.
            of: how many of them the stage has; 0 where there is one alone.
            episodes: how many episodes it will play.
        """
        named = {"work": work, "step": step, "of": of, "episodes_due": episodes}
        self._values = {**named, "phase": "", "since": time.time(), "episodes": 0, "succeeded": 0, "tokens": 0}

    def phase(self, name: str) -> None:
        """The work has come to this phase."""
        self._values |= {"phase": name, "phase_since": time.time()}
        self._write()

    def episode(self, record: Any) -> None:
        """An episode has ended; `record` has `success` and `steps`, whose generations are counted."""
        values = self._values
        if not values:
            return
        values["episodes"] += 1
        values["succeeded"] += bool(record.success)
        values["tokens"] += sum(len(step.generation.token_ids) for step in record.steps)
        if time.monotonic() - self._written >= EVERY_S:
            self._write()

    def close(self) -> None:
        """The run is closed: it does nothing."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        self._written = time.monotonic()
        part = self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
        with suppress(OSError):
            part.write_text(json.dumps(self._values))
            os.replace(part, self._path)
