"""Every part of the published ALFWorld setting runs here: only the model, the games and the sizes are small."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from agentrl.cli import main
from agentrl.engines.hf import Config as Embedded
from agentrl.files import read_toml
from agentrl.graph import read_graph
from agentrl.settings import Settings

RECIPE = Path(__file__).parents[2] / "benchmarks" / "recipes" / "alfworld-gigpo-1.5b.toml"
SMALL = (
    "model={new={layers=1, hidden=32, heads=2, kv_heads=1, intermediate=64, max_positions=2560}}",
    "env.source=generated",
    "run.iterations=2",
    "run.checkpoint_every=1",
    "run.threads=1",
    "eval.tasks=2",
    "eval.every=1",
    "eval.during=1",
    "engine.name=hf",  # test_gpu_recipes.py runs it on a server and on two processes
    "engine.max_slots=8",
    "learner.processes=1",
    "limits.turns=4",
    "limits.turn_tokens=12",
    "batch.tasks=2",
    "batch.copies=2",
    "update.minibatches=2",
    "optim.lr=1e-3",
)
AS_PUBLISHED = ("warmup.updates=0",)  # a model made from scratch would be warmed up by default


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    assert main(["train", str(RECIPE), f"run.folder={runs}", "run.name=small", *SMALL, *AS_PUBLISHED]) == 0
    return runs / "small"


def test_what_is_small_is_sizes_and_the_rest_is_the_recipe(folder):
    published, here = Settings.load(RECIPE).dump(), read_toml(folder / "config.toml")
    differing = {f"{s}.{k}" for s in published for k in published[s] if published[s][k] != here[s].get(k)}
    of_servers = {f"engine.{name}" for name in published["engine"].keys() - Embedded.model_fields.keys() - {"name"}}
    small = {text.partition("=")[0] for text in SMALL if not text.startswith("model=")} - {"engine.max_slots"}
    assert differing == small | of_servers | {"run.name", "run.folder", "run.date", "model.path"}
    assert here["env"]["prompt"] == "verl_agent" and here["env"]["state_key"] == "feedback"
    assert here["context"] == {"name": "last_k", "k": 2} and here["engine"]["actions"] == "free"
    assert here["update"]["kl_coef"] == 0.01 and here["update"]["entropy_coef"] == 0.001


def test_it_trains_evaluates_and_measures_the_distance_to_its_reference(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [r["name"] for r in rows if r["stage"] == "eval"] == ["start", "iteration 1", "end"]
    train = [r for r in rows if r["stage"] == "train"]
    assert [r["step"] for r in train] == [0, 1]
    assert all(math.isfinite(value) for r in train for value in r.values() if isinstance(value, float))
    kl = [r["kl_ref"] for r in train]
    assert kl[1] > 0.0
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == ["000001", "000002"]


def test_each_turn_is_a_prompt_of_its_own_with_the_last_two_steps(folder):
    graph = read_graph(folder / "graphs" / "000000.safetensors")
    assert graph.tokens is not None
    assert (graph.tokens.context == -1).all()  # a window is written anew each turn
    assert np.diff(graph.tokens.allowed_offsets).max() == 0  # free actions: nothing was masked
    assert all("<action>" not in text or "</action>" in text for text in graph.texts["answer"])
    assert graph.turn.max() == 3 and len(np.unique(graph.rollout)) == 4


def test_it_goes_on_and_is_evaluated_from_its_folder(folder, capsys):
    runs = f"run.folder={folder.parent}"
    assert main(["train", str(RECIPE), runs, "run.name=small", *SMALL, "run.iterations=3", "--resume"]) == 0
    capsys.readouterr()
    assert main(["eval", "alfworld", "--policy", str(folder), "--tasks", "1", "--split", "valid_seen", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["benchmark"] == "alfworld-gen" and report["episodes"] == 1
