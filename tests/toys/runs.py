"""What toy runs share: a model of one layer, and recipes of sections that a test adds to."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from agentrl.model import Loaded, ModelConfig, NewModel, load_model

MODEL = {"layers": 1, "hidden": 16, "heads": 2, "kv_heads": 1, "intermediate": 16, "max_positions": 512}
TOY: Mapping[str, Mapping[str, Any]] = {
    "run": {"iterations": 2},
    "model": {"new": MODEL},
    "engine": {"actions": "admissible", "max_context": 512},
    "optim": {"lr": 1e-3},
}
ALFWORLD: Mapping[str, Mapping[str, Any]] = {  # generated games, six moves each
    **TOY,
    "run": {"iterations": 2, "checkpoint_every": 1},
    "env": {"name": "alfworld", "prompt": "compact", "max_steps": 6},
    "eval": {"env": {"split": "valid_unseen"}},
    "model": {"new": {"layers": 1, "hidden": 32, "intermediate": 64, "max_positions": 512}},
    "engine": {"actions": "admissible", "max_slots": 16, "max_context": 512},
    "limits": {"turns": 6, "turn_tokens": 16},
    "warmup": {"expert": "wander"},
    "update": {"minibatches": 2},
}


def recipe(base: Mapping[str, Mapping[str, Any]], **sections: Mapping[str, Any]) -> str:
    """A recipe as TOML: the base with more options in its sections, and more sections."""
    names = {**base, **sections}
    return tomli_w.dumps({name: {**base.get(name, {}), **sections.get(name, {})} for name in names})


def cut_back(run: Path, step: int) -> str:
    """Copy a run as it was when its checkpoint of this step was the last one; returns the copy's name, `cut`.

    The later lines of its metrics stay, as in a run that was killed between two checkpoints.
    """
    copy = Path(shutil.copytree(run, run.parent / "cut"))
    config = copy / "config.toml"
    config.write_text(config.read_text().replace(f'name = "{run.name}"', 'name = "cut"', 1))
    for checkpoint in (copy / "checkpoints").iterdir():
        if int(checkpoint.name) > step:
            shutil.rmtree(checkpoint)
    for graph in (copy / "graphs").iterdir():
        if int(graph.stem) >= step:
            graph.unlink()
    return copy.name


def tiny_model(texts: Sequence[str], **options: Any) -> Loaded:
    """A model from scratch whose tokenizer knows the texts; options of `NewModel` beside those of MODEL."""
    return load_model(ModelConfig(new=NewModel(**{**MODEL, **options})), 0, texts=texts)
