"""Checkpoints: weights in the HF layout, optimiser, sampler, and where the run stood."""

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from types import MappingProxyType
from typing import Any, Protocol

import torch

from agentrl.model import Loaded, save_model
from agentrl.run.folder import RunFolder
from agentrl.trainer import Learner


@dataclass(kw_only=True)
class Progress:
    """Where a run stands between two steps.

    Attributes:
        stage: "warmup" or "train".
        step: the next step of that stage.
        sampler: the sampler's state.
        warmup_sampler: the state of the sampler that feeds the warm-up.
        metric_lines, timing_lines: lines of the metrics files that belong to the steps done.
        evaluated: names of evaluations done.
        tokens, calls: what training rollouts have sampled and carried out so far.
        signals: names of the rewards' signals that some step has reported.
    """

    stage: str = "warmup"
    step: int = 0
    sampler: Mapping[str, Any] = field(default_factory=dict)
    warmup_sampler: Mapping[str, Any] = field(default_factory=dict)
    metric_lines: int = 0
    timing_lines: int = 0
    evaluated: list[str] = field(default_factory=list)
    tokens: int = 0
    calls: int = 0
    signals: list[str] = field(default_factory=list)


class Stateful(Protocol):
    """What else a run keeps from one iteration to the next."""

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


def write(
    folder: RunFolder,
    name: str,
    learners: Mapping[str, Learner],
    progress: Progress,
    keep: int,
    others: Mapping[str, Stateful] = MappingProxyType({}),
) -> None:
    """Store everything the run needs to go on; the checkpoint appears complete or not at all."""
    part = folder.begin_checkpoint()
    try:
        for policy, learner in learners.items():
            save_model(Loaded(learner.model, learner.tokenizer), part / policy)
            torch.save(learner.state_dict(), part / f"{policy}.optimiser.pt")
        for other, kept in others.items():
            torch.save(kept.state_dict(), part / f"{other}.pt")
        (part / "progress.json").write_text(json.dumps(asdict(progress)))
    except (OSError, RuntimeError) as error:
        shutil.rmtree(part, ignore_errors=True)
        raise ValueError(
            f"cannot write a checkpoint into {folder.path} ({_why(error)}): free some space and resume; the one before "
            "is untouched"
        ) from error
    folder.finish_checkpoint(part, name, keep)


def _why(error: Exception) -> str:
    """Why a file could not be written, in words of one kind for every writer."""
    text = str(error)
    told = re.search(r"os error (\d+)", text)  # safetensors and tokenizers
    number = int(told[1]) if told else getattr(error, "errno", None)
    if number:
        return os.strerror(number)
    if "inline_container" in text or "PytorchStreamWriter" in text:  # torch does not say what the system said
        return "only a part of a file could be written, as on a full disk"
    return text


def read_progress(path: Path) -> Progress:
    """Where the run of a checkpoint stood."""
    try:
        return Progress(**json.loads((path / "progress.json").read_text()))
    except (OSError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a checkpoint of this version: {error}") from None


def restore(path: Path, learners: Mapping[str, Learner], others: Mapping[str, Stateful] = MappingProxyType({})) -> None:
    """Bring learners, built from the same configuration, and what else the run keeps to the state of a checkpoint."""
    for name, learner in learners.items():
        learner.load_state_dict(_state(path, f"{name}.optimiser.pt"))
    for name, kept in others.items():
        kept.load_state_dict(_state(path, f"{name}.pt"))


def _state(path: Path, name: str) -> Any:
    file = path / name
    if not file.is_file():
        raise ValueError(f"{path} has no {name}: it is a checkpoint of another run")
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, UnpicklingError):
        raise ValueError(f"{file} is damaged: remove the checkpoint {path} to go on from the one before") from None
