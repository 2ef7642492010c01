"""The recipes: every one resolves, those that are compared differ in what they say, and the small ones run."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from agentrl.cli import main
from agentrl.files import read_toml
from agentrl.settings import Settings

RECIPES = Path(__file__).parents[2] / "benchmarks" / "recipes"
SMALL = (
    "run.iterations=2",
    "run.checkpoint_every=0",
    "run.graphs_every=1",
    "warmup.episodes=8",
    "warmup.minibatches=2",
    "batch.tasks=4",
    "batch.copies=4",
    "eval.tasks=2",
    "eval.modes=['greedy']",
    "model.new.layers=1",
    "model.new.hidden=64",
    "model.new.intermediate=64",
    "log.picture=false",
)


# Recipes that need a package in a Python of its own, or a task of the user's, and what they say without it.
# `make foreign` trains in these environments.
UNMET = {
    "inspect-ai-1.5b": "env.task is empty",
    "openenv-cpu": "env.url is empty",
    "textarena-cpu": "has no package textarena",
    "verifiers-1.5b": "env.taskset is empty",
}


@pytest.mark.parametrize("name", sorted(path.stem for path in RECIPES.glob("*.toml")))
def test_every_recipe_resolves(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = main(["train", str(RECIPES / f"{name}.toml"), "--dry-run"])
    told = capsys.readouterr()
    if name in UNMET:
        assert code == 2 and UNMET[name] in told.err and len(told.err.splitlines()) == 1
    else:
        assert code == 0 and f'name = "{name}"' in told.out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("one", "other", "sections"),
    [
        ("gigpo-cpu", "salt-cpu", {"credit"}),
        ("turn-ppo-cpu", "token-ppo-cpu", {"credit", "critic", "loss", "update"}),  # update: whose mean a loss takes
        ("turn-ppo-cpu", "grpo-sokoban-cpu", {"batch", "credit", "critic", "loss", "update"}),
    ],
)
def test_recipes_that_are_compared_differ_in_their_method_only(one, other, sections):
    ours, theirs = (Settings(read_toml(RECIPES / f"{name}.toml")).dump() for name in (one, other))
    ours["run"].pop("name")
    theirs["run"].pop("name")
    assert {s for s in ours.keys() | theirs.keys() if ours.get(s) != theirs.get(s)} == sections
    episodes = [x["batch"]["tasks"] * x["batch"]["copies"] for x in (ours, theirs)]
    assert episodes[0] == episodes[1]


# A bad clone gets half of the way; a new model's vocabulary is of 200 tasks without env.count.
ALFWORLD = ("warmup.updates=4", "warmup.episodes=16", "env.subgoal_reward=0.3", "env.count=24")
SOKOBAN = ("warmup.updates=1", "env.level=easy")


@pytest.mark.parametrize(
    ("name", "small"),
    [
        ("gigpo-cpu", ALFWORLD),
        pytest.param("salt-cpu", ALFWORLD, marks=pytest.mark.slow),
        pytest.param("turn-ppo-cpu", SOKOBAN, marks=pytest.mark.slow),
        pytest.param("token-ppo-cpu", SOKOBAN, marks=pytest.mark.slow),
        pytest.param("grpo-sokoban-cpu", SOKOBAN, marks=pytest.mark.slow),
    ],
)
def test_the_small_recipes_run(name, small, tmp_path):
    assert main(["train", str(RECIPES / f"{name}.toml"), f"run.folder={tmp_path}", *SMALL, *small]) == 0
    lines = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
    train = [line for line in lines if line["stage"] == "train"]
    assert len(train) == 2
    assert all(np.isfinite(value) for line in train for value in line.values() if isinstance(value, float))
    assert all(line["episodes"] == 16 and line["optimizer_steps"] > 0 for line in train)
    assert ("explained_variance" in train[0]) == ("ppo" in name)
    assert [line["name"] for line in lines if line["stage"] == "eval"] == ["start", "clone", "end"]


@pytest.mark.parametrize(
    ("words", "credit", "at"),
    [
        (
            "\"credit={name='token_gae', whiten=true}\" \"loss={name='ppo_clip'}\" critic.at=token critic.mean=value "
            "update.aggregation=token-mean update.sequence=step",
            "token_gae",
            "token",
        ),
        (
            "batch.tasks=16 batch.copies=8 \"credit={name='grpo'}\" \"loss={name='ppo_clip'}\" critic.model=none "
            "update.aggregation=token-mean update.sequence=step",
            "grpo",
            "turn",
        ),
        ("\"env={name='sokoban'}\" \"eval.env={split='test'}\"", "turn_ppo", "turn"),
    ],
)
def test_what_the_published_setting_names_beside_it_resolves_too(words, credit, at):
    path = RECIPES / "turn-ppo-webshop-3b.toml"
    comment = " ".join(line.lstrip("# ") for line in path.read_text().splitlines() if line.startswith("#"))
    assert words in comment
    settings = Settings.load(path, shlex.split(words))
    assert settings.credit.name == credit and settings.tables.critic.at == at
    tables = settings.tables
    assert tables.batch.tasks * tables.batch.copies == 128
    assert (tables.optim.lr, tables.critic.lr, tables.update.kl_coef) == (1e-6, 1e-5, 0.001)
