"""Metrics of a run: append-only JSON lines and, with log.tensorboard=true, TensorBoard events."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentrl.files import flush_entries, flush_to_disk, read_jsonl
from agentrl.run.folder import RunFolder


class Metrics:
    """Writes `metrics.jsonl`, which is the same for the same seed, and `timings.jsonl`, which is not."""

    def __init__(self, folder: RunFolder, *, tensorboard: bool = False) -> None:
        """Raises ValueError if `tensorboard` is true and tensorboardX is not installed."""
        self._folder = folder
        self.lines = _count(folder.metrics)
        self.timing_lines = _count(folder.timings)
        self._writer = _writer(folder.path / "tensorboard") if tensorboard else None

    def log(self, stage: str, step: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """Write one line of metrics, which is returned; numbers also go to TensorBoard."""
        row = {"stage": stage, "step": step, **_plain(values)}
        _append(self._folder.metrics, row)
        self.lines += 1
        if self._writer is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._writer.add_scalar(f"{stage}/{name}", value, step)
        return row

    def time(self, stage: str, step: int, seconds: Mapping[str, float]) -> None:
        """Write one line of timings."""
        _append(self._folder.timings, {"stage": stage, "step": step, **_plain(seconds)})
        self.timing_lines += 1

    def flush(self) -> None:
        """Wait until every line is on the disk, before a checkpoint that counts them."""
        for path in (self._folder.metrics, self._folder.timings):
            flush_to_disk(path)
        flush_entries(self._folder.path)

    def close(self) -> None:
        """Flush and close the TensorBoard writer."""
        if self._writer is not None:
            self._writer.close()


class Stopwatch:
    """CPU seconds and wall-clock seconds per phase of an iteration.

    Args:
        clock: CPU seconds, by default of the process; `time.thread_time` where phases of two threads overlap.
    """

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of a `with` block to the phase."""
        cpu, wall = self._clock(), time.perf_counter()
        try:
            yield
        finally:
            for key, value in (
                (f"{name}_cpu_s", self._clock() - cpu),
                (f"{name}_s", time.perf_counter() - wall),
            ):
                self.seconds[key] = self.seconds.get(key, 0.0) + value


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with floats rounded to 9 significant digits: enough to compare, short enough to read."""
    return {k: float(f"{v:.9g}") if isinstance(v, float) else v for k, v in values.items()}


def _append(path: Path, row: Mapping[str, Any]) -> None:
    try:
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
    except OSError as error:
        raise ValueError(
            f"cannot write {path}: {error.strerror or error}; free some space and continue with --resume"
        ) from error


def _count(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _writer(folder: Path) -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise ValueError(
            "log.tensorboard=true needs tensorboardX: pip install 'agentrl-stepgraph[tensorboard]'"
        ) from None
    return SummaryWriter(str(folder))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file; ValueError names the file and a line that is damaged."""
    return [row for _, row in read_jsonl(path, "metrics file")] if path.exists() else []
