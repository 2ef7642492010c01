"""Compares the folder of a run that was killed and resumed with the folder of the uninterrupted run.

Runs whose weights a training service holds are equal in every byte too, apart from the names of their checkpoints
there, which are random, and the log-probs of sampled tokens, whose rounding depends on the answers that were drawn
at the same time. Two undisturbed runs differ by at most 1e-6 nats there, and in nothing else.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file

IGNORED = (".lock", "report.html")  # the page holds times, which differ
SECONDS = ("seconds", "wall_seconds")  # the keys of an evaluation's times
ROUNDED = ("logprobs", "mismatch_max", "mismatch_mean")  # columns and metrics of the sampler's log-probs
ROUNDING = 1e-5  # nats; largest difference between them
RANDOM = re.compile(r"(?<=tinker://)[0-9a-f]+:train:\d+|(?<=-)[0-9a-f]{12}$")  # parts of a checkpoint's name
NAMES = ("name", "folder")  # keys that hold the name and the folder of a run, which differ


def files(folder: Path) -> list[str]:
    """The files under a folder and its empty folders, as relative names in order."""
    paths = [path for path in folder.rglob("*") if not path.is_dir() or not any(path.iterdir())]
    return sorted(str(path.relative_to(folder)) for path in paths if path.name not in IGNORED)


def differences(whole: Path, cut: Path, *, served: bool = False) -> list[str]:
    """One sentence for each file that differs between two runs of one recipe; times and the runs' names may differ.

    Args:
        whole, cut: the folders.
        served: a training service holds the weights; see the module.
    """
    differ = _served_difference if served else _difference
    ours, theirs = files(whole), files(cut)
    found = [f"{name} is missing" for name in ours if name not in theirs]
    found += [f"{name} is left over" for name in theirs if name not in ours]
    for name in ours:
        if name in theirs and (whole / name).is_file() and (why := differ(whole / name, cut / name)):
            found.append(f"{name} differs: {why}")
    return found


def _difference(a: Path, b: Path) -> str:
    """How two files differ; empty if they do not."""
    if a.read_bytes() == b.read_bytes():
        return ""
    if a.name == "timings.jsonl":
        return _first(list(_steps(a)), list(_steps(b)))
    if a.parent.name == "evaluations" and a.suffix == ".json":
        return _first(_without(json.loads(a.read_text()), SECONDS), _without(json.loads(b.read_text()), SECONDS))
    if a.name == "config.toml":
        return _first(_config(a), _config(b))
    if a.suffix == ".pt":  # the same state may be packed in another order
        return _first(*(torch.load(path, map_location="cpu", weights_only=True) for path in (a, b)))
    if a.suffix == ".jsonl":
        return _first(a.read_text().split("\n"), b.read_text().split("\n"))
    return f"{a.stat().st_size} and {b.stat().st_size} bytes"


def _served_difference(a: Path, b: Path) -> str:
    """How two files of runs at a training service differ; empty if they do not."""
    if a.name == "tinker.json":
        return _first(*(_unnamed(json.loads(path.read_text())) for path in (a, b)))
    if a.suffix == ".pt":
        return _first(*(_unnamed(torch.load(path, map_location="cpu", weights_only=True)) for path in (a, b)))
    if a.name == "metrics.jsonl":
        return _nearly(_rows(a), _rows(b))
    if a.suffix == ".safetensors":
        return _nearly(_columns(a), _columns(b))
    return _difference(a, b)


def _rows(path: Path) -> list[Any]:
    """The lines of a file of JSON lines; None after the last end of a line."""
    return [json.loads(line or "null") for line in path.read_text().split("\n")]


def _columns(path: Path) -> dict[str, Any]:
    """The tensors of a file, and the texts beside them."""
    with safe_open(path, "pt") as file:
        return {"": dict(file.metadata() or {}), **load_file(path)}


def _unnamed(value: Any) -> Any:
    """The value without the random parts of the names of checkpoints."""
    if isinstance(value, str):
        return RANDOM.sub("*", value) if value.startswith("tinker://") else value
    if isinstance(value, Mapping):
        return {key: _unnamed(inner) for key, inner in value.items()}
    return [_unnamed(inner) for inner in value] if isinstance(value, list | tuple) else value


def _nearly(a: Any, b: Any, place: str = "") -> str:
    """As `_first`; the values of the keys ROUNDED may differ by ROUNDING."""
    if place.rpartition("/")[2] in ROUNDED:
        x, y = (torch.as_tensor(value, dtype=torch.float64) for value in (a, b))
        near = x.shape == y.shape and torch.allclose(x, y, rtol=0, atol=ROUNDING, equal_nan=True)
        return "" if near else _first(a, b, place)
    if isinstance(a, Mapping) and isinstance(b, Mapping) and list(a) == list(b):
        return next((why for key in a if (why := _nearly(a[key], b[key], f"{place}/{key}"))), "")
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return next((why for i, (x, y) in pairs if (why := _nearly(x, y, f"{place}/{i}"))), "")
    return _first(a, b, place)


def _steps(path: Path) -> Iterator[tuple[str, int, list[str]]]:
    """Stage, step and columns of each line of timings."""
    for line in path.read_text().splitlines():
        row = json.loads(line)
        yield row["stage"], row["step"], sorted(row)


def _config(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line.partition(" = ")[0] not in NAMES]


def _without(value: Any, keys: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {key: _without(inner, keys) for key, inner in value.items() if key not in keys}
    return [_without(inner, keys) for inner in value] if isinstance(value, list) else value


def _first(a: Any, b: Any, place: str = "") -> str:
    """The first place at which two values, with tensors compared bit by bit, differ; empty if there is none."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = a.dtype == b.dtype and a.shape == b.shape and _bytes(a) == _bytes(b)
        return "" if same else f"{place or 'a tensor'}: other values"
    if type(a) is not type(b):
        return f"{place}: {a!r:.80} and {b!r:.80}"
    if isinstance(a, Mapping):
        if list(a) != list(b):
            return f"{place}: the keys {list(a)!r:.80} and {list(b)!r:.80}"
        return next((why for key in a if (why := _first(a[key], b[key], f"{place}/{key}"))), "")
    if isinstance(a, list | tuple):
        if len(a) != len(b):
            return f"{place}: {len(a)} and {len(b)} entries"
        return next(
            (why for i, (x, y) in enumerate(zip(a, b, strict=True)) if (why := _first(x, y, f"{place}/{i}"))), ""
        )
    same = a == b or (isinstance(a, float) and np.isnan(a) and np.isnan(b))
    return "" if same else f"{place}: {a!r:.80} and {b!r:.80}"


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
