"""Runs that replay: resumed bytes, the correction of old rows, and rollouts of another run."""

import json
from pathlib import Path

import numpy as np
import pytest

from agentrl.cli import main
from agentrl.graph import read_graph, token_rows
from tests.toys.runs import TOY, cut_back, recipe

WALK = {
    "env": {"name": "tests.toys.walk", "count": 2, "goal": 1},
    "eval": {"tasks": 1, "env": {"first": 3}},
    "batch": {"tasks": 2, "copies": 2},
    "limits": {"turns": 3, "turn_tokens": 8},
    "credit": {"name": "grpo"},
}
RECENT = {"replay": {"name": "recent", "copies": 2}, "optim": {"lr": 0.02}}
M2PO = {**RECENT, "loss": {"name": "m2po"}, "update": {"old_logprob": "engine"}}
VALUES = {"replay": {"name": "values_only"}, "credit": {"name": "gigpo"}}


def train(folder: Path, name: str, sections, *more: str) -> Path:
    path = folder / "walk.toml"
    path.write_text(recipe({**TOY, **WALK}, **sections, run={"iterations": 4, "checkpoint_every": 1, "keep": 9}))
    assert main(["train", str(path), f"run.name={name}", f"run.folder={folder}", *more]) == 0
    return folder / name


@pytest.mark.parametrize(
    "sections",
    [
        pytest.param(RECENT, id="recent"),
        pytest.param(M2PO, id="m2po", marks=pytest.mark.slow),
        pytest.param(VALUES, id="values", marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_that_replays_keeps_the_bytes(sections, tmp_path):
    whole = train(tmp_path, "whole", sections)
    cut = train(tmp_path, cut_back(whole, 2), sections, "--resume")
    names = [f"graphs/{i:06d}.safetensors" for i in range(4)]
    for name in [*names, "checkpoints/000004/policy/model.safetensors"]:
        assert (whole / name).read_bytes() == (cut / name).read_bytes(), name
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["stage"] == "train"]
    assert lines[0]["replayed_share"] == 0 and lines[3]["replayed_share"] > 0.2
    assert max((line["mismatch_max"] for line in lines if "mismatch_max" in line), default=0) < 1e-4  # of fresh rows
    graph = read_graph(whole / "graphs/000003.safetensors")
    old = graph.column("replayed")
    assert old.any() and (graph.version_newest[old] < 3).all()
    if sections is RECENT:
        at = old[token_rows(graph.tokens)] & graph.tokens.sampled
        ratio = np.exp(graph.tokens.columns["old_logprob"] - graph.tokens.logprobs)
        np.testing.assert_allclose(graph.tokens.columns["importance"][at], np.minimum(ratio, 2.0)[at])
        assert np.abs(ratio[at] - 1).max() > 1e-3  # the policy has moved since


@pytest.mark.slow
def test_rollouts_of_another_run_join_the_first_batch(tmp_path):
    other = train(tmp_path, "other", {})
    mine = train(tmp_path, "mine", {"replay": {"name": "values_only", "runs": [str(other)]}})
    graph = read_graph(mine / "graphs/000000.safetensors")
    old = graph.column("replayed")
    assert old.any() and np.isnan(graph.column("age")[old]).all()
    assert np.isnan(graph.column("advantage")[old]).all()  # not assigned
