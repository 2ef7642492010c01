"""The trackers of a run. Failures of a tracker do not stop the run; they are counted, and the first one is printed."""

import json
import math
import re
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentrl.config import Entry
from agentrl.files import write_atomically
from agentrl.trackers.entry import Tracked, Tracker, TrackerFile

FILE = "trackers.json"
GIVE_UP = 20  # a tracker whose last GIVE_UP calls have all failed gets no further lines


class Trackers:
    """Every tracker of a run.

    Args:
        entries: the trackers that the recipe names.
        run: the run that the trackers open; `resumed` and `id` come from `tracked_id`.
        say: prints a sentence for the user.

    Attributes:
        failures: name of a tracker -> number of its calls that failed.
    """

    def __init__(self, entries: Sequence[Entry[TrackerFile]], run: Tracked, say: Callable[[str], None]) -> None:
        self.failures: Counter[str] = Counter()
        self._run, self._say = run, say
        self._in_a_row: Counter[str] = Counter()
        self._open: dict[str, Tracker] = {}
        for entry in entries:
            opened = self._try(entry.name, "be opened", partial(entry.hooks.make, entry.config, run))
            if opened is not None:
                self._open[entry.name] = opened

    def log(self, stage: str, step: int, values: Mapping[str, Any]) -> None:
        """Give the numbers of one line of metrics to every tracker.

        An infinite number is given as NaN, because charts cannot show it.
        """
        numbers = {
            name: float(value) if math.isfinite(value) else math.nan
            for name, value in values.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        for name, tracker in self._open.items():
            if self._in_a_row[name] < GIVE_UP:
                self._try(name, "store a line of metrics", partial(tracker.log, stage, step, numbers))

    def close(self) -> None:
        """Close every tracker. If calls failed, store each tracker's number of failures in the run's folder."""
        for name, tracker in self._open.items():
            self._try(name, "be closed", tracker.close)
        self._open = {}
        if self.failures:
            counts = ", ".join(f"{name} {count}" for name, count in self.failures.items())
            self._say(f"trackers failed: {counts} times; the run is not affected, metrics.jsonl has every number")
            with suppress(ValueError):  # such as a full disk, which the run's own writes report
                _write(self._run.folder, {"id": self._run.id, "failures": dict(self.failures)})

    def _try(self, name: str, what: str, call: Callable[[], Any]) -> Any:
        """The result of a call; None if it raised. Failures are counted, and a warning is printed for the first one."""
        try:
            result = call()
        except Exception as error:  # noqa: BLE001  a tool may raise any exception, and the run must go on
            self.failures[name] += 1
            self._in_a_row[name] += 1
            if self.failures[name] == 1:
                why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                self._say(f"warning: the tracker {name} could not {what} ({why}); the run goes on")
            return None
        self._in_a_row[name] = 0
        return result


def check_packages(entries: Sequence[Entry[TrackerFile]]) -> None:
    """Raise ValueError if a package that a tracker needs is missing; the message says how to install it."""
    for entry in entries:
        package, extra = entry.hooks.package, entry.hooks.extra
        if package and find_spec(package) is None:
            how = f"'agentrl-stepgraph[{extra}]'" if extra else package
            raise ValueError(
                f"log.to={entry.name} needs {package}: pip install {how}, or take {entry.name} out of log.to"
            )


def tracked_id(folder: Path, name: str) -> tuple[str, bool]:
    """(the id of a run in its trackers, True if the run's folder held this id before).

    If the folder holds no id, a new id is made and stored in the folder.
    """
    try:
        known = str(json.loads((folder / FILE).read_text("utf-8"))["id"])
        if re.fullmatch(r"[\w.-]{1,120}", known, re.ASCII):
            return known, True
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass  # no id yet, or a damaged file; the run then gets a new id, and a new curve in the tool
    made = f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)[:80]}-{secrets.token_hex(4)}"
    _write(folder, {"id": made})
    return made, False


def _write(folder: Path, value: Mapping[str, Any]) -> None:
    write_atomically(folder / FILE, json.dumps(value, indent=1).encode())
