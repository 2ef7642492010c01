"""The recipe: it holds out what it says, and runs from end to end."""

import json
from pathlib import Path

import numpy as np
import pytest

from agentrl.cli import main
from agentrl.env import tasks_of
from agentrl.envs.calculator.stories import Event
from agentrl.graph import read_graph
from agentrl.run.start_checks import check_disjoint, held_out_tasks
from agentrl.settings import Settings

RECIPE = Path(__file__).parents[3] / "benchmarks" / "recipes" / "calculator-cpu.toml"


def told(tasks):
    """(numbers of each story, orders of events of the stories of more than one)."""
    numbers = {tuple(sorted(int(w.strip(".?")) for w in t.params["story"].split() if w[0].isdigit())) for t in tasks}
    orders = {tuple(Event(*event).kind for event in t.params["events"]) for t in tasks}
    return numbers, {kinds for kinds in orders if len(kinds) > 1}


def test_the_recipe_holds_out_what_it_is_tested_on():
    settings = Settings.load(RECIPE)
    trained, held_out = tasks_of(settings.env), held_out_tasks(settings)
    assert len(held_out) == 400 and len({task.params["story"] for task in held_out}) == 400
    check_disjoint(trained, held_out)
    (numbers, orders), (other_numbers, other_orders) = told(trained), told(held_out)
    assert numbers.isdisjoint(other_numbers) and orders.isdisjoint(other_orders)
    assert len(orders) >= 10 and len(other_orders) >= 5  # of events that happen twice or more
    assert {task.params["story"] for task in trained}.isdisjoint(task.params["story"] for task in held_out)


@pytest.mark.slow
def test_the_recipe_runs(tmp_path):
    words = [f"run.folder={tmp_path}", "run.iterations=1", "warmup.updates=1", "warmup.episodes=8", "batch.tasks=2"]
    words += ["batch.copies=4", "eval.env.count=2", "log.picture=false", "env.count=50"]
    assert main(["train", str(RECIPE), *words]) == 0
    run = tmp_path / "calculator-cpu"
    shown = json.loads((run / "evaluations" / "end-greedy.json").read_text())
    assert len(shown["outcomes"]) == 4 and shown["benchmark"].startswith("calculator, brief, line by line, 1-2 events")
    (stored,) = (run / "graphs").glob("*.safetensors")
    graph = read_graph(stored)
    assert "signal/called" in graph.columns and np.isfinite(graph.reward).all()
