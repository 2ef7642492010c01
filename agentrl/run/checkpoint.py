"""Checkpoints: weights in the HF layout, optimisers, the state of all stateful parts, and the position of the run.

For each policy P, a checkpoint holds the folder `P` (weights, tokenizer) and `P.optimiser.pt` (optimiser, schedule,
critic, reference). It also holds `state.pt` and `progress.json`. `state.pt` has the state of all other parts of the run
that keep a state, such as samplers, fillers (`agentrl.graph.filler`) and regularizers. `progress.json` has the
`RunState` and the number of the format. If the policies are divided over processes, each process writes its tensors of
policy P into the folder `P.parts`, and `P.optimiser.pt` holds no tensors.
"""

import json
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple
from zipfile import BadZipFile, ZipFile

import numpy as np
import torch

from agentrl.files import flush_to_disk, regular
from agentrl.run.best import BestCheckpoint, best_of
from agentrl.run.folder import RunFolder
from agentrl.run.spending import SPENT, usage_of
from agentrl.settings.sections import Tables
from agentrl.trainer import Learner, RunLearner
from agentrl.trainer.sections import ServiceOptions

FORMAT = 2
ARRAY = "numpy array"  # key under which a stored state holds a NumPy array, as a tensor


@dataclass(kw_only=True)
class RunState:
    """The position of a run between two iterations, or between two updates of the warm-up.

    Attributes:
        stage: "warmup" or "train".
        step: number of the next iteration, or of the next update of the warm-up, counted from 0.
        metric_lines, timing_lines: numbers of lines that were written so far to metrics.jsonl and to timings.jsonl.
        evaluated: names of the evaluations that are done.
        tokens, actions: numbers of tokens that were sampled, and of actions that were carried out, in training rollouts
            so far.
        dollars: dollars that a training service has cost so far, by the prices of [learner].
        best: the best checkpoint so far (`run.keep_best`).
    """

    stage: str = "warmup"
    step: int = 0
    metric_lines: int = 0
    timing_lines: int = 0
    evaluated: list[str] = field(default_factory=list)
    tokens: int = 0
    actions: int = 0
    dollars: float = 0.0
    best: BestCheckpoint = field(default_factory=BestCheckpoint)

    def __post_init__(self) -> None:
        """Check the values, which a damaged file may have changed: TypeError for a wrong type or range."""
        for name in ("step", "metric_lines", "timing_lines", "tokens", "actions"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
                raise TypeError(f"{name} = {value!r:.40} is not a whole number of 0 or more")
        dollars = self.dollars
        if not isinstance(dollars, int | float) or isinstance(dollars, bool) or not 0 <= dollars < math.inf:
            raise TypeError(f"dollars = {dollars!r:.40} is not a finite number of 0 or more")
        if self.stage not in ("warmup", "train"):
            raise TypeError(f"stage = {self.stage!r:.40} is neither warmup nor train")
        if not isinstance(self.evaluated, list) or not all(isinstance(name, str) for name in self.evaluated):
            raise TypeError(f"evaluated = {self.evaluated!r:.40} is no list of names")

    def count(self, metrics: Mapping[str, float]) -> None:
        """Add the numbers of sampled tokens and of actions from the metrics of a batch."""
        self.tokens += int(metrics["generated_tokens"])
        self.actions += int(metrics["actions"])

    def pay(self, row: Mapping[str, Any], prices: ServiceOptions) -> dict[str, float]:
        """Add the price of what a line of metrics counts; returns the metrics of it, which are empty without prices."""
        if not prices.priced:
            return {}
        dollars = usage_of(row).dollars(prices)
        self.dollars += dollars
        return {"dollars": dollars, SPENT: self.dollars}

    def spent(self, tables: Tables) -> float:
        """The largest used share of the budgets `run.tokens`, `run.actions` and `learner.budget`; 0 without budgets."""
        limits, budget = tables.run, tables.learner.budget
        used = ((self.tokens, limits.tokens), (self.actions, limits.actions), (self.dollars, budget))
        return max(count / (limit or math.inf) for count, limit in used)


class StoredState(NamedTuple):
    """A checkpoint without the state of the learners: the position of the run, and the state of each part by name."""

    progress: RunState
    parts: Mapping[str, Any]


def write(
    folder: RunFolder,
    name: str,
    save: Callable[[Path], None],
    progress: RunState,
    keep: int,
    parts: Mapping[str, Any],
) -> None:
    """Write a checkpoint: everything that the run needs to continue. It appears complete or not at all.

    Args:
        folder, name: folder of the run, and name of the checkpoint.
        save: writes the policies into a folder (`Policies.save`).
        progress: the position of the run.
        keep: number of checkpoints to keep; older ones are removed, except for the best one (`RunState.best`).
        parts: the state of the rollouts (`rollouts`), and the state of fillers and regularizers (`policies`).

    Raises:
        ValueError: the checkpoint cannot be written, for example because the disk is full; older checkpoints are
            unchanged.
        ConnectionError: `save` raised it, because the service that holds the weights is gone; older checkpoints are
            unchanged.
    """
    part = folder.begin_checkpoint()
    try:
        save(part)
        torch.save(_packed(parts), part / "state.pt")
        (part / "progress.json").write_text(json.dumps({"format": FORMAT, **asdict(progress)}))
        flush_to_disk(part)
    except ConnectionError:  # also an OSError, but no fault of the disk
        shutil.rmtree(part, ignore_errors=True)
        raise
    except (OSError, RuntimeError) as error:
        shutil.rmtree(part, ignore_errors=True)
        raise ValueError(
            f"cannot write a checkpoint into {folder.path} ({_why(error)}): free some space, then continue with "
            "--resume; older checkpoints are unchanged"
        ) from error
    folder.finish_checkpoint(part, name, keep, progress.best.checkpoint)


def write_learner(part: Path, policy: str, learner: RunLearner) -> None:
    """Write optimiser, schedule, critic and reference of a policy; every process that shares the learner calls this."""
    if learner.ranks.leads:
        torch.save(learner.state_dict(), part / f"{policy}.optimiser.pt")
    if learner.config.divided:
        assert isinstance(learner, Learner), "only the weights of this run's processes are divided"
        learner.write_parts(part / f"{policy}.parts")


def _why(error: Exception) -> str:
    """The reason why a file could not be written, in the same words for torch, safetensors and plain files."""
    text = str(error)
    numbered = re.search(r"os error (\d+)", text)  # safetensors and tokenizers
    number = int(numbered[1]) if numbered else getattr(error, "errno", None)
    if number:
        return os.strerror(number)
    if "inline_container" in text or "PytorchStreamWriter" in text:  # torch's message leaves out the system's error
        return "only a part of a file could be written; the disk may be full"
    return text


def read(path: Path, learners: Mapping[str, RunLearner]) -> StoredState:
    """Load the state of the run's learners from one of the run's checkpoints; returns the rest of the checkpoint.

    Raises:
        ValueError: `path` is no checkpoint of this run, is damaged, or has another format.
    """
    progress = read_progress(path)
    states = {name: _state(path, f"{name}.optimiser.pt") for name in learners}
    parts = _unpacked(_state(path, "state.pt"))
    for name, learner in learners.items():
        try:
            learner.load_state_dict(states[name], path / f"{name}.parts")
        except (ValueError, RuntimeError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise of_another_run(path / f"{name}.optimiser.pt", error) from None
    return StoredState(progress, parts)


def read_progress(path: Path) -> RunState:
    """The position at which a checkpoint stores the run.

    Raises:
        ValueError: progress.json is missing or damaged, has another format, or holds a value of a wrong
            type or range.
    """
    table = _table(path)
    known = {one.name: table[one.name] for one in fields(RunState) if one.name in table}
    try:
        return RunState(**{**known, "best": best_of(table)})
    except TypeError as error:
        raise ValueError(f"{path / 'progress.json'}: {error}; remove the checkpoint to continue from another") from None


def _table(path: Path) -> dict[str, Any]:
    """The content of progress.json; ValueError if it is damaged or its format is unknown."""
    try:
        table = json.loads(regular(path / "progress.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a checkpoint of this version: {error}") from None
    if not isinstance(table, dict):
        raise ValueError(f"{path} is not a checkpoint of this version: progress.json holds no object")
    version = table.get("format", 1)
    if version != FORMAT:
        raise ValueError(
            f"{path} is a checkpoint of format {version!r:.40}, this agentrl reads {FORMAT}: use the agentrl "
            "that wrote it (its version is in versions.json)"
        )
    return table


def of_another_run(file: Path, error: Exception) -> ValueError:
    """The error for a stored state that does not fit this run."""
    why = " ".join(str(error).split())[:160] or type(error).__name__
    return ValueError(f"{file} does not fit this run ({why}): remove its checkpoint to continue from an older one")


def _packed(state: Any) -> Any:
    """A state with tensors in place of NumPy arrays, which `torch.load(weights_only=True)` does not read."""
    if isinstance(state, np.ndarray):
        return {ARRAY: torch.from_numpy(state)}
    if isinstance(state, Mapping):
        return {key: _packed(value) for key, value in state.items()}
    return [_packed(value) for value in state] if isinstance(state, list | tuple) else state


def _unpacked(state: Any) -> Any:
    """A state that `_packed` returned, with NumPy arrays again."""
    if isinstance(state, Mapping):
        if set(state) == {ARRAY}:
            return state[ARRAY].numpy()
        return {key: _unpacked(value) for key, value in state.items()}
    return [_unpacked(value) for value in state] if isinstance(state, list | tuple) else state


def _state(path: Path, name: str) -> Any:
    file = path / name
    if not regular(file).is_file():
        raise ValueError(f"{path} has no {name}: it is a checkpoint of another run")
    try:
        _check_zip(file)
        return torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, UnpicklingError, ValueError, LookupError, BadZipFile, TypeError):
        raise ValueError(f"{file} is damaged: remove the checkpoint {path} to continue from an older one") from None


def _check_zip(file: Path) -> None:
    """Raises ValueError if the file, which `torch.save` writes without compression, would grow when it is read."""
    with ZipFile(file) as packed:
        if sum(one.file_size for one in packed.infolist()) > file.stat().st_size:
            raise ValueError(f"{file} is compressed")
