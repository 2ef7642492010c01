"""The recipe: it holds out what it says, and runs from end to end."""

import json
from pathlib import Path

import numpy as np
import pytest

from agentrl.cli import main
from agentrl.env import tasks_of
from agentrl.envs.desk.environment import case_of
from agentrl.graph import read_graph
from agentrl.run.checks import check_disjoint, held_out_tasks
from agentrl.settings import Settings

RECIPE = Path(__file__).parents[3] / "benchmarks" / "recipes" / "desk-cpu.toml"


def test_the_recipe_holds_out_what_it_is_tested_on():
    settings = Settings.load(RECIPE)
    trained, held_out = tasks_of(settings.env), held_out_tasks(settings)
    assert len(held_out) == 200
    check_disjoint(trained, held_out)
    people = [
        {one for task in some for one in case_of(task.params["made"]).data["guests"]}
        for some in (trained[:6], held_out[:6])
    ]
    assert people[0].isdisjoint(people[1])


@pytest.mark.slow
def test_the_recipe_runs(tmp_path):
    words = [f"run.folder={tmp_path}", "run.iterations=1", "warmup.updates=1", "warmup.episodes=8", "batch.tasks=2"]
    words += ["batch.copies=4", "eval.tasks=4", "eval.env.count=4", "log.picture=false", "env.count=50"]
    assert main(["train", str(RECIPE), *words]) == 0
    run = tmp_path / "desk-cpu"
    shown = json.loads((run / "evaluations" / "end-greedy.json").read_text())
    assert len(shown["outcomes"]) == 4
    assert shown["benchmark"] == "desk-gen bookings, up to 1 requests, test, user script, policy enforced"
    (stored,) = (run / "graphs").glob("*.safetensors")
    assert np.isfinite(read_graph(stored).reward).all()
