"""The list of the runs in a folder, with configuration, state, success and disk use. This module writes nothing."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agentrl.catalogue import nearest
from agentrl.files import read_json
from agentrl.run import finite_number, read_metrics
from agentrl.runs.status import is_run, read_config, setting, status_of
from agentrl.runs.watching import updates_before, whole

PARTS = ("graphs", "checkpoints", "evaluations")
DEPTH = 2  # number of levels of folders that are searched below the given folder


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """One run of a list.

    Attributes:
        path: its folder.
        name: `run.name`; the name of the folder if the configuration has no `run.name`.
        broken: the reason why the run cannot be read; empty if it can be read.
        state: see `agentrl.runs.status.RunStatus`.
        recipe: name of the recipe; empty if the run has not stored it.
        env, credit, model: names from the run's configuration.
        step, iterations: number of iterations that are done, and `run.iterations`.
        success, low, high: success rate of the newest held-out evaluation, and the bounds of its 95% interval. If the
            run has greedy evaluations, sampled evaluations are left out here and in `best`.
        best, best_step: highest success rate of the held-out evaluations, and number of iterations before the
            evaluation with this rate.
        training: success rate of the newest training batch.
        changed: when config.toml or metrics.jsonl last changed, in seconds since 1970; 0 if both are missing.
        bytes: number of bytes of all files in the folder (key `all`), and of the files in each subfolder of `PARTS`
            (key: the name of the subfolder).
        config: the run's configuration.
    """

    path: str
    name: str
    broken: str = ""
    state: str = ""
    recipe: str = ""
    env: str = ""
    credit: str = ""
    model: str = ""
    step: int = 0
    iterations: int = 0
    success: float | None = None
    low: float | None = None
    high: float | None = None
    best: float | None = None
    best_step: int | None = None
    training: float | None = None
    changed: float = 0.0
    bytes: Mapping[str, int] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def value(self, key: str) -> Any:
        """The value of a column, `bytes`, `bytes.PART` or a dotted key of the configuration; None for any other key."""
        if key == "bytes" or key.startswith("bytes."):
            return self.bytes.get(key.partition(".")[2] or "all")
        return getattr(self, key) if key in COLUMNS else setting(self.config, key)

    def table(self) -> dict[str, Any]:
        """All attributes as JSON values. Values of the configuration that JSON lacks, such as dates, become text."""
        return {**asdict(self), "config": _json(self.config)}


COLUMNS = tuple(name for name in ListedRun.__dataclass_fields__ if name not in ("config", "bytes"))


def listed_runs(folder: Path) -> list[ListedRun]:
    """The runs in a folder and its subfolders, `DEPTH` levels deep; only the folder itself if it is a run.

    Runs that cannot be read are listed too, with the reason in `broken`.

    Raises:
        ValueError: there is no such folder.
    """
    if not folder.is_dir():
        raise ValueError(f"no such folder: {folder}; name the folder that holds your runs (run.folder of a recipe)")
    return [listed(path) for path in _run_folders(folder, DEPTH)]


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    if is_run(folder) or (folder / "metrics.jsonl").exists():
        yield folder
    elif depth:
        try:
            inside = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
        except OSError:  # for example, the user has no permission to read the folder
            return
        for path in inside:
            yield from _run_folders(path, depth - 1)


def listed(path: Path) -> ListedRun:
    """One run. If its files cannot be read, `broken` holds the message of the error."""
    try:
        return _read(path)
    except Exception as error:  # noqa: BLE001  a damaged file may hold anything, and the other runs are still listed
        why = str(error) if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {error}"
        return ListedRun(path=str(path), name=path.name, broken=why or type(error).__name__, bytes=disk_use(path))


def _read(path: Path) -> ListedRun:
    config = read_config(path)
    rows = read_metrics(path / "metrics.jsonl").rows
    status = status_of(path, rows)
    train = [row for row in rows if row["stage"] == "train"]
    held_out = [row for row in rows if row["stage"] == "eval" and finite_number(row.get("success_rate")) is not None]
    modes = {str(row.get("mode", "")) for row in held_out}
    own = [row for row in held_out if str(row.get("mode", "")) == ("greedy" if "greedy" in modes else max(modes))]
    best = max(own, key=lambda row: float(row["success_rate"]), default=None)
    interval = own[-1].get("interval") or (None, None) if own else (None, None)
    model = setting(config, "model.path", "") or ("new" if setting(config, "model.new") else "")
    return ListedRun(
        path=str(path),
        name=str(setting(config, "run.name", path.name)),
        state=status.state,
        recipe=_recipe(path),
        env=str(setting(config, "env.name", "")),
        credit=str(setting(config, "credit.name", "")),
        model=str(model),
        step=len(train),
        iterations=whole(config, "run.iterations"),
        success=finite_number(own[-1].get("success_rate")) if own else None,
        low=interval[0],
        high=interval[1],
        best=finite_number(best.get("success_rate")) if best else None,
        best_step=updates_before(best) if best else None,
        training=finite_number(train[-1].get("success")) if train else None,
        changed=_changed(path),
        bytes=disk_use(path),
        config=config,
    )


def _recipe(path: Path) -> str:
    """The recipe's name in versions.json; empty if no recipe's file began the run."""
    file = path / "versions.json"
    table = read_json(file, "versions of a run") if file.is_file() else {}
    return str(table.get("recipe", "")) if isinstance(table, dict) else ""


def _changed(path: Path) -> float:
    times = [(path / name).stat().st_mtime for name in ("config.toml", "metrics.jsonl") if (path / name).exists()]
    return max(times, default=0.0)


def disk_use(path: Path) -> dict[str, int]:
    """See `ListedRun.bytes`. Files that are deleted during the count are left out."""
    found = dict.fromkeys(("all", *PARTS), 0)
    for place, _, files in os.walk(path):
        inside = Path(place).relative_to(path).parts
        for name in files:
            try:
                size = (Path(place) / name).lstat().st_size
            except OSError:
                continue
            found["all"] += size
            if inside and inside[0] in PARTS:
                found[inside[0]] += size
    return found


def ordered(runs: Sequence[ListedRun], key: str) -> list[ListedRun]:
    """The runs, sorted by the values of a key (see `ListedRun.value`), descending if the key begins with `-`.

    Runs that lack the key come last.

    Raises:
        ValueError: no run has the key.
    """
    name = key.removeprefix("-")
    _check_key(runs, name)
    having = [run for run in runs if run.value(name) is not None]
    numbers = all(isinstance(run.value(name), int | float) for run in having)
    having.sort(key=lambda run: run.value(name) if numbers else str(run.value(name)), reverse=key.startswith("-"))
    return [*having, *(run for run in runs if run.value(name) is None)]


def _check_key(runs: Sequence[ListedRun], key: str) -> None:
    """Raises ValueError if the key is no column and no run's configuration has it. Without runs, every key is accepted.

    The message names similar keys or, if there are none, the columns.
    """
    parts = [f"bytes.{part}" for part in PARTS]
    if key in (*COLUMNS, "bytes", *parts) or any(run.value(key) is not None for run in runs) or not runs:
        return
    known = sorted({*COLUMNS, "bytes", *parts, *(path for run in runs for path in _paths(run.config))})
    close = nearest(key, known)
    if "did you mean" not in close:
        close = f": use a column ({', '.join((*COLUMNS, 'bytes'))}) or a key of config.toml"
    raise ValueError(f"--sort {key}: no run has it{close}")


def _json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_json(inner) for inner in value]
    plain = isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    return value if plain else str(value)


def _paths(tables: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from _paths(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"
