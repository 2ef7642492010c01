"""Checkpoints of another format, and of a damaged run, are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from agentrl.run import Progress
from agentrl.run.checkpoint import _state, read_progress
from agentrl.settings import Settings
from agentrl.train import train

TABLES: dict[str, Any] = {
    "env": {"name": "tests.toys.walk", "goal": 2},
    "eval": {"tasks": 1, "env": {"first": 100}, "modes": ["greedy"]},
    "model": {"new": {"layers": 1, "hidden": 16, "heads": 2, "kv_heads": 1, "intermediate": 16, "max_positions": 256}},
    "engine": {"max_context": 256},
    "warmup": {"expert": "straight"},
    "limits": {"turns": 4, "turn_tokens": 4},
    "batch": {"tasks": 4, "copies": 1},
    "sampler": {"name": "curriculum"},
    "credit": {"name": "single_stream"},
    "update": {"regularizers": [{"name": "entropy_band", "coef": 0.05}]},
    "optim": {"lr": 0.01},
}


def settings(folder: Path, name: str, iterations: int) -> Settings:
    run = {"name": name, "folder": str(folder), "iterations": iterations, "checkpoint_every": 2, "keep": 9}
    return Settings({**TABLES, "run": run})


@pytest.mark.parametrize("version", [1, 9])
def test_a_checkpoint_of_another_format_is_refused(tmp_path, version):
    quiet = Progress(quiet=True)
    train(settings(tmp_path, "run", 1), progress=quiet)
    for checkpoint in (tmp_path / "run" / "checkpoints").iterdir():
        table = json.loads((checkpoint / "progress.json").read_text())
        (checkpoint / "progress.json").write_text(json.dumps({**table, "format": version}))
    with pytest.raises(ValueError, match=f"is a checkpoint of format {version}, this agentrl reads 2"):
        train(settings(tmp_path, "run", 2), resume=True, progress=quiet)


def damaged(folder: Path, capsys: Any) -> None:
    """The run must be refused as it stands, with nothing changed."""
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    quiet = Progress(quiet=True)
    with pytest.raises(ValueError, match=r"run\.name=|remove"):
        train(settings(folder.parent, folder.name, 4), resume=True, progress=quiet)
    assert before == {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_resume_refuses_lost_lines_and_lost_checkpoints(tmp_path, capsys):
    train(settings(tmp_path, "run", 2), progress=Progress(quiet=True))
    folder = tmp_path / "run"
    metrics = (folder / "metrics.jsonl").read_bytes()
    for data in (metrics[:-3], metrics[:40] + b"\n", metrics[:-8] + bytes(8), b""):
        (folder / "metrics.jsonl").write_bytes(data)
        damaged(folder, capsys)
    (folder / "metrics.jsonl").unlink()
    damaged(folder, capsys)
    (folder / "metrics.jsonl").write_bytes(metrics)
    checkpoints = (folder / "checkpoints").rename(tmp_path / "kept")
    damaged(folder, capsys)
    (folder / "metrics.jsonl").unlink()
    damaged(folder, capsys)  # the graphs still tell that it has trained
    (folder / "metrics.jsonl").write_bytes(metrics)
    checkpoints.rename(folder / "checkpoints")
    train(settings(tmp_path, "run", 4), resume=True, progress=Progress(quiet=True))


@pytest.mark.parametrize(
    ("key", "value"),
    [("step", "1"), ("step", -1), ("stage", 3), ("metric_lines", None), ("evaluated", "end"), ("tokens", 10**30)],
)
def test_values_of_wrong_types_in_a_checkpoint_are_refused(tmp_path, key, value):
    path = tmp_path / "000001"
    path.mkdir()
    (path / "progress.json").write_text(json.dumps({"format": 2, key: value}))
    with pytest.raises(ValueError, match=rf"progress.json: {key} = "):
        read_progress(path)


def test_state_of_other_shapes_is_one_sentence(tmp_path, capsys):
    train(settings(tmp_path, "run", 2), progress=Progress(quiet=True))
    file = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1] / "policy.optimiser.pt"
    whole = torch.load(file, weights_only=True)

    def odd_shapes(state: dict[str, Any]) -> dict[str, Any]:
        moments = state["optimisers"][0]["state"]
        changed = {i: {**one, "exp_avg": torch.zeros(3), "exp_avg_sq": torch.zeros(3)} for i, one in moments.items()}
        return {**state, "optimisers": [{**state["optimisers"][0], "state": changed}]}

    for change in (odd_shapes, lambda state: {}, lambda state: [1], lambda state: {**state, "updates": "x"}):
        torch.save(change(whole), file)
        damaged(tmp_path / "run", capsys)
    torch.save(whole, file)
    state = file.with_name("state.pt")
    torch.save({"rollouts": {}, "policies": {}}, state)
    damaged(tmp_path / "run", capsys)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_cut_optimiser_file_is_named_with_the_way_on(share, tmp_path):
    file = tmp_path / "policy.optimiser.pt"
    torch.save({"step": torch.zeros(100)}, file)
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=r"policy\.optimiser\.pt is damaged: remove the checkpoint .* an older one"):
        _state(tmp_path, file.name)
