"""A run that begins failed tasks at start states: resumed bytes, and the trainer reads what the engine sampled."""

import json
from pathlib import Path

import pytest

from agentrl.cli import main
from agentrl.graph import read_graph
from tests.toys.runs import TOY, recipe

WALK = {
    "env": {"name": "tests.toys.walk", "count": 2, "goal": 5},
    "eval": {"tasks": 1, "env": {"first": 3}},
    "guide": {"name": "start_state", "source": "expert"},
    "warmup": {"expert": "straight"},
    "batch": {"tasks": 2, "copies": 2},
    "limits": {"turns": 5, "turn_tokens": 8},
}


def train(folder: Path, name: str, *more: str) -> Path:
    path = folder / "walk.toml"
    path.write_text(recipe(TOY, **WALK, run={"iterations": 4, "checkpoint_every": 1, "keep": 9}))
    assert main(["train", str(path), f"run.name={name}", f"run.folder={folder}", *more]) == 0
    return folder / name


@pytest.mark.slow
def test_a_resumed_run_with_start_states_keeps_the_bytes(tmp_path):
    whole = train(tmp_path, "whole")
    train(tmp_path, "cut", "run.iterations=2")
    cut = train(tmp_path, "cut", "--resume")
    for iteration in range(4):
        name = f"graphs/{iteration:06d}.safetensors"
        assert (whole / name).read_bytes() == (cut / name).read_bytes(), name
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["stage"] == "train"]
    assert max(line["mismatch_max"] for line in lines) < 1e-4  # nats: behind the prompt that the chain was sampled in
    graph = read_graph(whole / "graphs/000001.safetensors")
    assert graph.column("guided").any() and graph.turn.min() == 4


@pytest.mark.slow
def test_lessons_are_imitated_when_enough_tasks_fail(tmp_path):
    sections = {**WALK, "guide": {"name": "interleave", "episodes": 2}}
    path = tmp_path / "walk.toml"
    run = {"iterations": 3, "checkpoint_every": 1, "keep": 9}
    path.write_text(recipe(TOY, **sections, run=run, update={"epochs": 1}))
    for name, more in (("whole", []), ("cut", ["run.iterations=1"]), ("cut", ["--resume"])):
        assert main(["train", str(path), f"run.name={name}", f"run.folder={tmp_path}", *more]) == 0
    weights = [tmp_path / name / "checkpoints/000003/policy/model.safetensors" for name in ("whole", "cut")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    lines = [json.loads(line) for line in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()]
    lessons = [line for line in lines if line["stage"] == "train" and "lesson_loss" in line]
    assert lessons and all(line["lesson_episodes"] == 2 for line in lessons)
    assert not any("guided_share" in line for line in lines)


def test_an_expert_that_the_environment_does_not_know_is_told(tmp_path, capsys):
    path = tmp_path / "walk.toml"
    path.write_text(recipe(TOY, **{**WALK, "warmup": {"expert": "crooked"}}))
    assert main(["train", str(path), f"run.folder={tmp_path}"]) == 2
    assert "crooked" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("word", ["guide.name=start_stat", "guide.patience=0"])
def test_mistakes_in_a_guide_are_told(word, tmp_path, capsys):
    path = tmp_path / "walk.toml"
    path.write_text(recipe(TOY, **WALK))
    assert main(["train", str(path), word, f"run.folder={tmp_path}", "--dry-run"]) == 2
    told = capsys.readouterr().err
    assert "start_state" in told or "guide.patience" in told
