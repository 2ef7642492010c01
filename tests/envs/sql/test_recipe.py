"""The recipe: it holds out what it says, and a short run of it learns."""

import json
from pathlib import Path

import pytest

from agentrl.cli import main
from agentrl.env import tasks_of
from agentrl.envs.sql.database import problem_of
from agentrl.run.checks import check_disjoint
from agentrl.run.rollouts import held_out_tasks
from agentrl.settings import Settings

RECIPE = Path(__file__).parents[3] / "benchmarks" / "recipes" / "sql-cpu.toml"


def test_the_recipe_holds_out_what_it_is_tested_on():
    settings = Settings.load(RECIPE)
    trained, held_out = tasks_of(settings.env), held_out_tasks(settings)
    assert len(held_out) == 200
    check_disjoint(trained, held_out)
    tables = [
        {t.name for task in some for t in problem_of(task.params["made"]).schema}
        for some in (trained[:20], held_out[:20])
    ]
    assert tables[0].isdisjoint(tables[1])


@pytest.mark.slow
def test_a_short_run_of_the_recipe_learns(tmp_path):
    words = [f"run.folder={tmp_path}", "run.iterations=4", "warmup.updates=30", "warmup.episodes=48", "eval.tasks=40"]
    words += ["eval.every=4", "log.picture=false", "env.count=2000", "eval.env.count=40", "warmup.expert=expert"]
    assert main(["train", str(RECIPE), *words]) == 0
    shown = json.loads((tmp_path / "sql-cpu" / "evaluations" / "end-greedy.json").read_text())
    assert len(shown["outcomes"]) == 40 and shown["benchmark"] == "sql-gen easy, 2 tables, test"
    assert shown["success_rate"] >= 0.2, "random play solves 2%"
