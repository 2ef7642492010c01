"""The recipes: they resolve, hold out what they say, and the small one runs from end to end."""

import json
from pathlib import Path

import numpy as np
import pytest

from agentrl.cli import main
from agentrl.env import tasks_of
from agentrl.graph import read_graph
from agentrl.run.start_checks import check_disjoint, held_out_tasks
from agentrl.settings import Settings

RECIPES = Path(__file__).parents[3] / "benchmarks" / "recipes"


def test_the_published_setting_resolves_without_data_or_retriever(capsys):
    assert main(["train", str(RECIPES / "search-r1-3b.toml"), "--dry-run"]) == 0
    assert "Qwen/Qwen2.5-3B" in capsys.readouterr().out
    settings = Settings.load(RECIPES / "search-r1-3b.toml")
    env, tables = settings.env.config, settings.tables
    assert (env.top_k, env.max_turns, tables.limits.turns, tables.limits.turn_tokens) == (3, 2, 3, 500)
    assert settings.context.config.observation_tokens == 500 and not tables.sampling.stop  # the environment's own
    # three answers and two results of 500 tokens, and a prompt of up to 1,500, fit the window
    assert settings.engine.config.max_context >= 1500 + 3 * 500 + 2 * 500


def test_what_is_missing_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", str(RECIPES / "search-r1-3b.toml")]) == 2
    assert "env.data = 'data/nq_search': no such file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_small_recipe_holds_out_every_thing_it_is_tested_on():
    settings = Settings.load(RECIPES / "search-cpu.toml")
    trained, held_out = tasks_of(settings.env), held_out_tasks(settings)
    assert len(held_out) == 400
    check_disjoint(trained, held_out)
    names = {name for task in trained for name in task.params["path"] if not name.isdigit()}
    assert names.isdisjoint(name for task in held_out for name in task.params["path"])


@pytest.mark.slow
def test_the_small_recipe_runs(tmp_path):
    words = [f"run.folder={tmp_path}", "run.iterations=1", "warmup.updates=1", "warmup.episodes=8", "batch.tasks=2"]
    words += ["batch.copies=4", "eval.tasks=4", "log.picture=false"]
    assert main(["train", str(RECIPES / "search-cpu.toml"), *words]) == 0
    run = tmp_path / "search-cpu"
    shown = json.loads((run / "evaluations" / "end-greedy.json").read_text())
    assert len(shown["outcomes"]) == 4 and shown["benchmark"].startswith("search-gen tiny-0, test split")
    (stored,) = (run / "graphs").glob("*.safetensors")
    graph = read_graph(stored)
    assert "signal/em" in graph.columns and np.isfinite(graph.reward).all()
