"""Whole runs whose rollouts branch: bytes repeat, a killed run goes on, budgets end it, mistakes are told at start."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from agentrl.cli import main
from agentrl.env import Slot
from agentrl.graph import CANDIDATE, PLAYED, PROBE, decisions, forked, read_graph
from tests.toys.runs import ALFWORLD, recipe

RECIPE = recipe(
    ALFWORLD,
    env={"count": 24},  # a new model's vocabulary is of 200 tasks otherwise
    eval={"tasks": 2, "modes": ["greedy"]},
    batch={"tasks": 2, "copies": 4},
    rollout={"name": "tree"},
    credit={"name": "tree_grpo"},
    update={"kl_coef": 0.01},
)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the recipe, for comparisons."""
    path = tmp_path_factory.mktemp("whole") / "tiny.toml"
    path.write_text(RECIPE)
    return run(path, "whole")


def run(recipe: Path, name: str, *more: str) -> Path:
    folder = recipe.parent / "runs"
    assert main(["train", str(recipe), f"run.name={name}", f"run.folder={folder}", *more]) == 0
    return folder / name


def rows(folder: Path, stage: str = "train") -> list[dict]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["stage"] == stage]


def same(a: Path, b: Path) -> None:
    """Metrics, graphs and final weights are equal byte for byte."""
    for name in ("metrics.jsonl", *(f"graphs/{i:06d}.safetensors" for i in range(2))):
        assert (a / name).read_bytes() == (b / name).read_bytes()
    weights = "checkpoints/000002/policy/model.safetensors"
    assert (a / weights).read_bytes() == (b / weights).read_bytes()


def test_trees_train_and_the_same_seed_gives_the_same_bytes(recipe, whole):
    same(whole, run(recipe, "b"))
    for number, row in enumerate(rows(whole)):
        graph = read_graph(whole / "graphs" / f"{number:06d}.safetensors")
        assert row["episodes"] == 2 * 6 == len(np.unique(graph.episode)) and len(np.unique(graph.tree)) == 4
        assert forked(graph) and row["actions"] == len(graph) and row["replayed_actions"] == 0
        assert row["generated_tokens"] == graph.tokens.sampled.sum()
        assert row["tokens"] == row["generated_tokens"] < row["packed_tokens"]  # nothing was pruned; prompts are packed
        assert row["decision_tokens"] == decisions(graph.tokens)[graph.tokens.sampled].sum()  # each once
        assert np.isfinite(row["loss"]) and row["grad_norm"] >= 0


@pytest.mark.slow
def test_worker_processes_branch_as_this_process_does(recipe, whole):
    same(whole, run(recipe, "b", "pool.kind=processes", "pool.workers=2"))


def test_replay_branches_as_snapshots_do(recipe, whole, monkeypatch):
    monkeypatch.setattr(Slot, "snapshot", lambda self: None)  # an environment that has none
    cut = run(recipe, "b")
    assert sum(row["replayed_actions"] for row in rows(cut)) > 0
    for number in range(2):
        name = f"graphs/{number:06d}.safetensors"
        assert (whole / name).read_bytes() == (cut / name).read_bytes()


@pytest.mark.slow
def test_a_run_killed_in_the_middle_of_an_expansion_goes_on_as_if_it_had_not_been(recipe, whole):
    folder = recipe.parent / "runs"
    marker = recipe.parent / "expanding"
    script = (
        "import sys, time, agentrl.rollout.expansion as e\n"
        "go_on, times = e.Expansion.go_on, []\n"
        "async def slow(self, *a, **k):\n"
        "    times.append(0)\n"
        "    if len(times) == 2:\n"  # the second iteration's branches
        f"        open({str(marker)!r}, 'w').close()\n"
        "        time.sleep(60)\n"
        "    return await go_on(self, *a, **k)\n"
        "e.Expansion.go_on = slow\n"
        "from agentrl.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", script, "train", str(recipe), "run.name=cut", f"run.folder={folder}"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while process.poll() is None and not marker.exists():
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL and len(rows(folder / "cut")) == 1
    same(whole, run(recipe, "cut", "--resume"))


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        (("rollout={name='entropy_branch'}",), {PLAYED}),
        (("rollout={name='vine', probes=2}", "credit={name='vine_ppo'}"), {PLAYED, PROBE}),
        (("rollout={name='candidates', candidates=2}", "credit={name='tl_grpo'}"), {PLAYED, CANDIDATE}),
        pytest.param(
            ("rollout.rounds=2", "rollout.leaves=5", "sampler={name='dynamic', max_rounds=2}"),
            {PLAYED},
            marks=pytest.mark.slow,
        ),
        (("context={name='last_k', k=2}",), {PLAYED}),
        (("loss={name='gspo'}", "update.sequence='episode'", "update.aggregation='seq-mean-token-mean'"), {PLAYED}),
    ],
)
def test_every_rollout_trains(recipe, options, kinds):
    folder = run(recipe, "a", "run.iterations=1", *options)
    graph = read_graph(folder / "graphs" / "000000.safetensors")
    assert set(np.unique(graph.kind)) == kinds
    (row,) = rows(folder)
    assert row["optimizer_steps"] >= 1 and np.isfinite(row["loss"])
    assert row["actions"] >= len(graph) and row["env_error_share"] == 0


def test_a_run_ends_when_its_budget_is_spent_and_goes_on_with_a_larger_one(recipe, whole):
    budget = f"run.actions={rows(whole)[0]['actions']}"
    folder = run(recipe, "cut", budget)
    assert rows(folder) == rows(whole)[:1]
    assert [row["step"] for row in rows(folder, "eval") if row["name"] == "end"] == [1]
    run(recipe, "cut", budget, "--resume")
    assert [row["step"] for row in rows(folder, "eval") if row["name"] == "end"] == [1]  # nothing was added
    run(recipe, "cut", "--resume")
    assert rows(folder)[1:] == rows(whole)[1:]


def complaint(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Exit code 2, one line on standard error, nothing on standard output."""
    assert main([str(word) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["rollout.name=chain"], "rollout.nodes"),
        (
            ["rollout={name='chain'}"],
            "credit.name=tree_grpo needs the column 'tree': it compares the branches of a tree: set rollout.name=tree",
        ),
        (["credit={name='vine_ppo'}"], "needs the column 'value': set critic.model=head or own, or rollout.name=vine"),
        (["credit.mode=per_token"], "cannot be combined with rollout.name=tree: credit per token"),
        (
            ["rollout={name='vine'}", "credit={name='vine_ppo'}", "critic.model=head"],
            "critic.model=head: both fill the column 'value'",
        ),
        (["credit={name='info_gain'}"], "needs the column 'gold_logprob'"),
        (["rollout.leaves=4"], "leaves is 4, a tree has 1 + nodes * rounds = 3"),
        (["rollout.trees=1000", "rollout.leaves=3", "batch.tasks=1000"], "3000000 episodes per iteration"),
        (["rollout={name='tre'}"], "did you mean tree"),
    ],
)
def test_what_cannot_work_is_told_before_anything_is_played(recipe, capsys, options, sentence):
    words = ["train", recipe, f"run.folder={recipe.parent}/runs", *options]
    if options == ["rollout.name=chain"]:
        words.append("rollout.nodes=2")  # an option of another rollout
    assert sentence in complaint(capsys, *words)
    assert not (recipe.parent / "runs").exists()
