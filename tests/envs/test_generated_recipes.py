"""Recipes of generated tasks: each holds out what it says, and runs from end to end."""

import json
from pathlib import Path

import numpy as np
import pytest

from agentrl.cli import main
from agentrl.env import tasks_of
from agentrl.envs.desk.environment import case_of
from agentrl.envs.sql.database import problem_of
from agentrl.graph import read_graph
from agentrl.run.start_checks import check_disjoint, held_out_tasks
from agentrl.settings import Settings

RECIPES = Path(__file__).parents[2] / "benchmarks" / "recipes"


def guests(task):
    return set(case_of(task.params["made"]).data["guests"])


def tables(task):
    return {table.name for table in problem_of(task.params["made"]).schema}


@pytest.mark.parametrize(("recipe", "contents"), [("desk-cpu", guests), ("sql-cpu", tables)])
def test_the_recipe_holds_out_what_it_is_tested_on(recipe, contents):
    settings = Settings.load(RECIPES / f"{recipe}.toml")
    trained, held_out = tasks_of(settings.env), held_out_tasks(settings)
    assert len(held_out) == 200
    check_disjoint(trained, held_out)
    seen, unseen = (set().union(*map(contents, some)) for some in (trained[:6], held_out[:6]))
    assert len(seen) > 6 and len(unseen) > 6 and seen.isdisjoint(unseen)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "benchmark"),
    [
        ("desk-cpu", "desk-gen bookings, up to 1 requests, test, user script, policy enforced"),
        ("sql-cpu", "sql-gen easy, 2 tables, test"),
    ],
)
def test_the_recipe_runs(tmp_path, recipe, benchmark):
    words = [f"run.folder={tmp_path}", "run.iterations=1", "warmup.updates=1", "warmup.episodes=8", "batch.tasks=2"]
    words += ["batch.copies=4", "eval.tasks=4", "eval.env.count=4", "log.picture=false", "env.count=50"]
    assert main(["train", str(RECIPES / f"{recipe}.toml"), *words]) == 0
    run = tmp_path / recipe
    shown = json.loads((run / "evaluations" / "end-greedy.json").read_text())
    assert len(shown["outcomes"]) == 4
    assert shown["benchmark"] == benchmark
    (stored,) = (run / "graphs").glob("*.safetensors")
    assert np.isfinite(read_graph(stored).reward).all()
