"""The folder of a run: configuration, versions, metrics, graphs and checkpoints.

Files and checkpoints appear complete or not at all, except for the files of trackers and the files that grow line by
line: the metrics, the timings and the paid answers of scores. A crash during a write can cut the last line of such a
file.
"""

import errno
import fcntl
import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import tomli_w

from agentrl.files import flush_entries, listed, read_json, read_toml, remove_remnants, write_atomically
from agentrl.run.holder import LOCK, clear_holder, read_holder, write_holder
from agentrl.secret import scrubbed_values

TASK_KINDS = "task_kinds"  # key in the notes of stored rollouts; its value is a table: task key -> task type
RECORDED = (  # packages whose versions are stored in versions.json
    "agentrl-stepgraph",
    "torch",
    "transformers",
    "numpy",
    "tokenizers",
    "gymnasium",
    "alfworld",
    "textworld",
    "tinker",
)
FREE_TO_DIFFER = (  # options that may differ from the stored configuration when a run is resumed
    "run.iterations",
    "run.tokens",
    "run.actions",
    "run.keep",
    "run.keep_best",
    "run.checkpoint_every",
    "run.threads",
    "scoring.answers",
    "scoring.tokens",
    "scoring.price",
    "scoring.concurrency",
    "scoring.second.threshold",
    "limits.silent_seconds",
    "learner.url",
    "learner.processes",
    "learner.checkpointing",
    "learner.offload",
    "learner.keep_days",
    "learner.timeout_s",
    "learner.price_prefill",
    "learner.price_cached",
    "learner.price_sample",
    "learner.price_train",
    "learner.budget",
    "update.max_tokens",
    "log.picture",
    "log.report",
    "log.entropies",
    "log.durations",
)


def check_folder(folder: Path) -> None:
    """Can the folder of a run be made, and can files be written into it? Nothing is left behind.

    Raises:
        ValueError: it cannot; the sentence names run.folder and run.name.
    """
    advice = "choose another run.folder=... or run.name=..."
    if "\0" in str(folder):
        raise ValueError(f"the run's folder {str(folder)!r} has a null byte in its name: {advice}")
    place = folder.absolute()
    try:
        while not place.exists():
            if os.path.lexists(place):
                raise NotADirectoryError(errno.ENOTDIR, "it is a link to nothing")
            place = place.parent
        if not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "it is a file")
        # A file mode does not suffice: by its mode, a superuser could write to /proc, where no file can be made.
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        at = "" if place == folder.absolute() else f"{place}: "
        why = "no file can be made there" if error.errno == errno.ENOENT else error.strerror
        raise ValueError(f"the run's folder {str(folder)[:200]} cannot be written ({at}{why}): {advice}") from None


class RunFolder:
    """Paths and files of one run.

    Attributes:
        killed: id of the process that trained the run before and was killed. 0 if that process closed the run, or if
            no process trained the run before. `open` sets this attribute.

    Args:
        path: the folder.
        complete: adds the defaults of newer options to a stored configuration, so that --resume accepts a run of an
            older version.
    """

    def __init__(self, path: Path, complete: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict) -> None:
        self.path, self.complete = path, complete
        self.killed = 0
        self._made = False
        self._lock: IO[bytes] | None = None

    @property
    def metrics(self) -> Path:
        """File of metrics: one JSON object per line. With `run.deterministic`, the same seed gives the same bytes."""
        return self.path / "metrics.jsonl"

    @property
    def health(self) -> Path:
        """File of the findings of the health rules (`agentrl.run.health`)."""
        return self.path / "health.json"

    @property
    def timings(self) -> Path:
        """File of timings: seconds and CPU seconds, one JSON object per line, different in every run."""
        return self.path / "timings.jsonl"

    def open(self, config: Mapping[str, Any], *, resume: bool, recipe: str = "") -> None:
        """Make the folder of a new run, or open the folder of a run to resume. `recipe` is the name of the recipe.

        Raises:
            ValueError: see `refuse`; or another process trains this run.
        """
        self.refuse(config, resume=resume)
        self.path.mkdir(parents=True, exist_ok=True)
        self._hold()
        self.refuse(config, resume=resume)
        for place in (self.path, self.path / "graphs", self.path / "evaluations"):
            remove_remnants(place)
        self._made = not (self.path / "config.toml").exists()
        write_atomically(self.path / "config.toml", tomli_w.dumps(dict(config)).encode())
        write_atomically(self.path / "versions.json", json.dumps({**versions(), "recipe": recipe}, indent=1).encode())

    def refuse(self, config: Mapping[str, Any], *, resume: bool) -> None:
        """Check whether a run with this configuration can use the folder; nothing is written.

        Raises:
            ValueError: the folder holds a run although `resume` is false, or it holds a run with another configuration,
                or it holds other files and no run.
            OSError: the folder cannot exist, for example because its parent is a file.
        """
        with suppress(FileNotFoundError):
            self.path.stat()
        existing = self.path / "config.toml"
        if existing.exists():
            if not resume:
                raise ValueError(
                    f"{self.path} already holds a run: add --resume to continue it, or choose another run.name=..."
                )
            differing = sorted(_differences(self.complete(read_toml(existing)), config))
            if differing:
                raise ValueError(
                    f"{self.path} holds a run with another configuration (other values of "
                    f"{', '.join(differing[:3])}): choose run.name=... for a new run"
                )
        elif self.path.exists() and any(file.name != LOCK for file in self.path.iterdir()):
            raise ValueError(f"{self.path} is not empty and holds no run: choose another run.name=...")

    def _hold(self) -> None:
        """Lock the folder against other processes, until `release` is called or this process ends in any way."""
        if self._lock is not None:
            return
        lock = (self.path / LOCK).open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise ValueError(
                f"{self.path} is held by another process that trains this run: wait for that process or stop it, or "
                "choose run.name=... for a new run"
            ) from None
        self._lock = lock
        before = read_holder(self.path)
        self.killed = 0 if before is None else before.pid
        write_holder(lock)

    def release(self) -> None:
        """Unlock the folder and empty the lock file. An empty lock file means that the process was not killed."""
        if self._lock is not None:
            clear_holder(self._lock)
            self._lock.close()
            self._lock = None

    def drop_if_nothing_came_of_it(self) -> None:
        """Remove the folder if this object made it and it holds no result.

        So the run's name is free again if the run fails before it has a result, for example because a prompt does not
        fit into the context.
        """
        measured = self.metrics.exists() and self.metrics.stat().st_size > 0
        if self._made and not measured and not self.checkpoints():
            shutil.rmtree(self.path, ignore_errors=True)

    def graph_path(self, iteration: int) -> Path:
        """File of an iteration's rollouts."""
        return self.path / "graphs" / f"{iteration:06d}.safetensors"

    def stored_graphs(self) -> list[Path]:
        """Files of the stored rollouts, in the order of the iterations."""
        return [path for path in listed(self.path / "graphs", "*.safetensors") if path.stem.isdecimal()]

    def evaluation_graph_path(self, name: str) -> Path:
        """File of an evaluation's episodes, beside its report."""
        return self.path / "evaluations" / f"{name.replace(' ', '-')}.safetensors"

    def checkpoints(self) -> list[Path]:
        """Complete checkpoints, oldest first: `clone-NNNNNN` of the warm-up, then `NNNNNN`."""
        folder = self.path / "checkpoints"
        # A checkpoint is moved aside while its replacement is written. If the process was killed before the replacement
        # arrived, put the old one back.
        for before in folder.glob(".before-*"):
            target = folder / before.name.removeprefix(".before-")
            if not target.exists():
                os.replace(before, target)
        complete = [p for p in listed(folder, "*") if re.fullmatch(r"(clone-)?\d{6}", p.name)]
        return sorted(complete, key=lambda p: (p.name.isdecimal(), p.name))

    def latest(self) -> Path:
        """The newest checkpoint; ValueError if there is none."""
        checkpoints = self.checkpoints()
        if not checkpoints:
            raise ValueError(f"{self.path} has no checkpoint yet: let the run reach its first checkpoint")
        return checkpoints[-1]

    def checkpoint(self, name: str) -> Path:
        """A checkpoint by its name; empty for the newest, `best` for the best one (`run.keep_best`).

        Raises:
            ValueError: there is no such checkpoint.
        """
        if not name:
            return self.latest()
        known = {path.name: path for path in self.checkpoints()}
        wanted = self._best() if name == "best" else name
        if wanted not in known:
            gone = f", which was {wanted}" if name == "best" else ""
            raise ValueError(f"{self.path} has no checkpoint {name!r}{gone}: it has {', '.join(known) or 'none'}")
        return known[wanted]

    def _best(self) -> str:
        """Name of the best checkpoint, from the newest checkpoint's progress.json."""
        table = read_json(self.latest() / "progress.json", "file of a checkpoint")
        best = table.get("best") if isinstance(table, dict) else None
        found = best.get("checkpoint") if isinstance(best, dict) else None
        if not found or not isinstance(found, str):
            raise ValueError(f"{self.path} has no best checkpoint: train with run.keep_best=true and eval.every=N")
        return found

    def begin_checkpoint(self) -> Path:
        """Make an empty folder to write a checkpoint into, and remove the remains of an unfinished checkpoint."""
        part = self.path / "checkpoints" / ".part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        return part

    def finish_checkpoint(self, part: Path, name: str, keep: int, best: str = "") -> None:
        """Give a written checkpoint its name, then remove all but the newest `keep` checkpoints and the best one."""
        target, before = self.path / "checkpoints" / name, part.with_name(f".before-{name}")
        shutil.rmtree(before, ignore_errors=True)
        if target.exists():
            os.replace(target, before)
        os.replace(part, target)
        flush_entries(target.parent)
        shutil.rmtree(before, ignore_errors=True)
        for old in self.checkpoints()[:-keep]:
            if old.name != best:
                shutil.rmtree(old)

    def write_report(self, name: str, summary: Mapping[str, Any], outcomes: Iterable[Any]) -> None:
        """Write an evaluation: its summary and the outcome of every episode."""
        rows = [asdict(outcome) for outcome in outcomes]
        text = json.dumps(scrubbed_values({**summary, "outcomes": rows}), indent=1)
        write_atomically(self.path / "evaluations" / f"{name.replace(' ', '-')}.json", text.encode())

    def check_never_stored(self) -> None:
        """Check that a run without checkpoints never had one.

        Raises:
            ValueError: the run has trained. A run writes a checkpoint before its first iteration, so this run has lost
                its checkpoints.
        """
        metrics = self.metrics.read_bytes() if self.metrics.exists() else b""
        if b'"stage": "train"' in metrics or self.stored_graphs():
            raise ValueError(
                f"{self.path} has trained, and its checkpoints are missing: restore {self.path / 'checkpoints'}, or "
                "choose run.name=... for a new run"
            )


def _flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterable[str]:
    a, b = _flat(old), _flat(new)
    return [k for k in {**a, **b} if a.get(k) != b.get(k) and k not in FREE_TO_DIFFER and not k.startswith("log.")]


def versions() -> dict[str, str]:
    """Versions of Python, of the system and of the packages that influence a run's results."""
    by_name = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    for name in RECORDED:
        try:
            by_name[name] = version(name)
        except PackageNotFoundError:
            by_name[name] = "not installed"
    return by_name
