"""Runs with hints: resumed bytes, the correction of the prompt without the hint, sentences for mistakes."""

import json
from pathlib import Path

import numpy as np
import pytest

from agentrl.cli import main
from agentrl.graph import decisions, read_graph, token_rows
from tests.toys.runs import TOY, recipe

WALK = {
    "env": {"name": "tests.toys.walk", "count": 2, "goal": 3},
    "eval": {"tasks": 1, "env": {"first": 3}},
    "guide": {"name": "hints", "source": "expert", "copies": 2},
    "warmup": {"expert": "straight"},
    "batch": {"tasks": 2, "copies": 2},
    "limits": {"turns": 3, "turn_tokens": 8},
    "credit": {"name": "grpo"},
}


def train(folder: Path, name: str, *more: str) -> Path:
    path = folder / "walk.toml"
    path.write_text(recipe(TOY, **WALK, run={"iterations": 4, "checkpoint_every": 1, "keep": 9}))
    assert main(["train", str(path), f"run.name={name}", f"run.folder={folder}", *more]) == 0
    return folder / name


@pytest.mark.slow
def test_hinted_chains_are_corrected_and_a_resumed_run_keeps_the_bytes(tmp_path):
    whole = train(tmp_path, "whole")
    train(tmp_path, "cut", "run.iterations=2")
    cut = train(tmp_path, "cut", "--resume")
    for iteration in range(4):
        name = f"graphs/{iteration:06d}.safetensors"
        assert (whole / name).read_bytes() == (cut / name).read_bytes(), name
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["stage"] == "train"]
    assert any("guided_share" in line for line in lines)
    assert max(line["mismatch_max"] for line in lines) < 1e-4  # the other prompt is no fault of the engine
    graph = next(
        g for g in (read_graph(whole / f"graphs/{i:06d}.safetensors") for i in range(4)) if g.has("reprompted")
    )
    assert (graph.column("reprompted") == graph.column("guided")).all() and any(graph.texts["words"])
    tokens, old, weight = graph.tokens, graph.token_column("old_logprob"), graph.token_column("importance")
    changed = graph.column("reprompted").astype(bool)[token_rows(tokens)] & decisions(tokens)
    apart = old[changed] - tokens.logprobs[changed]
    assert np.abs(apart).max() > 1e-4  # behind another prompt the policy says something else
    np.testing.assert_allclose(weight[changed], np.minimum(np.exp(apart), 2.0))  # truncated importance sampling


@pytest.mark.slow
def test_chains_that_are_trained_with_their_hint_need_no_correction(tmp_path):
    run = train(tmp_path, "with", "guide.train=with")
    graphs = [read_graph(run / f"graphs/{i:06d}.safetensors") for i in range(4)]
    assert any(graph.has("guided") for graph in graphs) and not any(graph.has("reprompted") for graph in graphs)
    assert all((graph.token_column("importance") == 1).all() for graph in graphs)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["rollout={name='tree'}"], "choose rollout.name=chain"),
        (["guide.tiers=[2.0]"], "ascending shares"),
        (["guide.source=file"], "or neither"),
    ],
)
def test_mistakes_are_told(words, told, tmp_path, capsys):
    path = tmp_path / "walk.toml"
    path.write_text(recipe(TOY, **WALK))
    assert main(["train", str(path), *words, f"run.folder={tmp_path}", "--dry-run"]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_missing_file_of_hints_is_told_before_anything_is_written(tmp_path, capsys):
    path = tmp_path / "walk.toml"
    path.write_text(recipe(TOY, **WALK))
    missing = tmp_path / "hints.jsonl"
    words = [f"guide={{name='hints', source='file', path='{missing}'}}", f"run.folder={tmp_path}"]
    assert main(["train", str(path), *words]) == 2
    told = capsys.readouterr().err
    assert str(missing) in told and "Traceback" not in told
    assert not (tmp_path / "run").exists()
