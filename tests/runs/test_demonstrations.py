"""Runs with demonstrations in their groups: resumed bytes, statistics without them, sentences for mistakes."""

import json
from pathlib import Path

import numpy as np
import pytest

from agentrl.cli import main
from agentrl.graph import DEMO, read_graph
from tests.toys.runs import TOY, cut_back, recipe

WALK = {
    "env": {"name": "tests.toys.walk", "count": 2, "goal": 5},
    "eval": {"tasks": 1, "env": {"first": 3}},
    "guide": {"name": "demonstration", "source": "expert"},
    "warmup": {"expert": "straight"},
    "batch": {"tasks": 2, "copies": 2},
    "limits": {"turns": 5, "turn_tokens": 8},
    "credit": {"name": "grpo"},
    "update": {"regularizers": [{"name": "imitation", "shape": "bounded", "by": "advantage"}]},
    "optim": {"lr": 1e-2},
}


def train(folder: Path, name: str, *more: str) -> Path:
    path = folder / "walk.toml"
    path.write_text(recipe(TOY, **WALK, run={"iterations": 4, "checkpoint_every": 1, "keep": 9}))
    assert main(["train", str(path), f"run.name={name}", f"run.folder={folder}", *more]) == 0
    return folder / name


def test_demonstrations_are_imitated_and_a_resumed_run_keeps_the_bytes(tmp_path, capsys):
    whole = train(tmp_path, "whole")
    cut = train(tmp_path, cut_back(whole, 2), "--resume")
    for iteration in range(4):
        name = f"graphs/{iteration:06d}.safetensors"
        assert (whole / name).read_bytes() == (cut / name).read_bytes(), name
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["stage"] == "train"]
    assert all(line["episodes"] == 4 for line in lines)  # demonstrations are none of them
    assert max(line["mismatch_max"] for line in lines) < 1e-4  # an expert's tokens are no fault of the engine
    assert lines[0]["demonstrated_share"] > 0 and lines[0]["imitation"] < 0
    graph = read_graph(whole / "graphs/000000.safetensors")
    shown = graph.kind == DEMO
    assert shown.sum() >= 5 and (graph.column("advantage")[shown] > 0).all()
    old = [
        g.token_column("old_logprob")[np.repeat(g.kind == DEMO, np.diff(g.tokens.offsets)) & g.tokens.sampled].mean()
        for g in (read_graph(whole / f"graphs/{i:06d}.safetensors") for i in range(2))
    ]
    assert old[1] > old[0]
    capsys.readouterr()
    assert (
        main(["credit", "grpo", "--steps", str(whole / "graphs/000000.safetensors")]) == 0
    )  # stored runs can be read and credited again
    assert "4 episodes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["update.regularizers=[]", "guide.statistics=false"], "has no effect"),
        (["credit={name='turn_returns'}"], "or choose credit.name from gigpo, grpo, rloo"),
        (["guide={name='interleave'}"], "set guide.name=demonstration"),
        (["guide.train=ratio"], "an expert has none"),
        (["rollout={name='tree'}"], "choose rollout.name=chain"),
        (["score={name='length_rules'}"], "demonstrations are not scored"),
    ],
)
def test_mistakes_are_told(words, told, tmp_path, capsys):
    path = tmp_path / "walk.toml"
    path.write_text(recipe(TOY, **WALK))
    assert main(["train", str(path), *words, f"run.folder={tmp_path}", "--dry-run"]) == 2
    assert told in capsys.readouterr().err
