"""The two halves of a run: each is built from settings and files alone, in a process of its own."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from agentrl.credit import assign
from agentrl.graph import read_graph, write_graph
from agentrl.model import Loaded, Weights, load_tokenizer, save_model
from agentrl.run import Policies, Progress, Rollouts, read_vocabularies, vocabularies
from agentrl.run.vocabulary import write_vocabularies
from agentrl.settings import Settings
from agentrl.train import train
from agentrl.trainer import charge_kl

TABLES: dict[str, Any] = {
    "run": {"name": "whole", "iterations": 2, "checkpoint_every": 0, "seed": 3},
    "env": {"name": "tests.toys.walk", "goal": 2},
    "eval": {"tasks": 1, "env": {"first": 100}, "modes": ["greedy"]},
    "model": {"new": {"layers": 1, "hidden": 16, "heads": 2, "kv_heads": 1, "intermediate": 16, "max_positions": 256}},
    "engine": {"actions": "admissible", "max_context": 256},
    "warmup": {"expert": "straight"},
    "limits": {"turns": 4, "turn_tokens": 4},
    "batch": {"tasks": 2, "copies": 3},
    "credit": {"name": "grpo"},
    "update": {"regularizers": [{"name": "entropy_band"}]},
    "optim": {"lr": 0.01},
}


def learn(folder: Path, graphs: Any, versions: Any) -> None:
    """A process that holds the policies only: graphs in, weights out."""
    settings = Settings(TABLES)
    policies = Policies(settings, read_vocabularies(folder))
    policies.restart("train")
    for version in range(3):
        for name, learner in policies.learners.items():
            save_model(Loaded(learner.model, learner.tokenizer), folder / f"{version}" / name)
        versions.put(version)
        if version < 2:
            annotated = policies.annotate(read_graph(Path(graphs.get())))
            graph, _ = charge_kl(annotated, settings.tables.update)
            policies.improve(graph, assign(settings.credit, graph), version)


def roll(folder: Path, versions: Any, graphs: Any) -> None:
    """A process that holds the rollouts only: weights in, graphs out."""
    settings = Settings(TABLES)
    plans = {name: plan.model for name, plan in settings.policies.items()}
    rollouts = None
    for version in iter(versions.get, 2):
        if rollouts is None:
            rollouts = Rollouts(settings, {name: load_tokenizer(folder / f"{version}" / name) for name in plans})
        rollouts.load(Weights.read(folder / f"{version}", plans), version)
        path = folder / f"{version}.safetensors"
        write_graph(rollouts.batch(version).graph, path)
        graphs.put(str(path))
    assert rollouts is not None
    rollouts.close()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_processes_play_and_learn_what_one_does(tmp_path):
    settings = Settings({**TABLES, "run": {**TABLES["run"], "folder": str(tmp_path)}})
    whole = train(settings, progress=Progress(quiet=True))
    write_vocabularies(vocabularies(Settings(TABLES)), tmp_path)
    spawn = multiprocessing.get_context("spawn")
    graphs, versions = spawn.SimpleQueue(), spawn.SimpleQueue()
    processes = [
        spawn.Process(target=learn, args=(tmp_path, graphs, versions)),
        spawn.Process(target=roll, args=(tmp_path, versions, graphs)),
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    stored = read_graph(whole.folder.graph_path(1))
    apart = read_graph(tmp_path / "1.safetensors")
    assert stored.columns["action"].tolist() == apart.columns["action"].tolist()
    assert stored.tokens.ids.tolist() == apart.tokens.ids.tolist()
    assert abs(stored.tokens.logprobs - apart.tokens.logprobs).max() < 1e-5
    assert stored.columns["version_newest"].tolist() == apart.columns["version_newest"].tolist()
