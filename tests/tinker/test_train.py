"""Whole runs against a training service, through the official SDK and the server of `agentrl serve trainer`."""

import json
import math
import shutil
import socket

import pytest

from agentrl.cli import main
from agentrl.engines.tinker.engine import TinkerEngine
from agentrl.graph import read_graph
from agentrl.model import read_served
from agentrl.run import read_metrics
from agentrl.settings import Settings
from agentrl.train import train
from tests.toys.training_service import training_service

pytest.importorskip("tinker")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """One service for all runs of this module."""
    with training_service(tmp_path_factory.mktemp("service")) as running:
        yield running


def recipe(served, folder, **sections):
    """A small recipe whose rewards depend on the answers."""
    tables = {
        "run": {"name": "run", "folder": str(folder), "iterations": 2, "checkpoint_every": 1, "keep": 2, "seed": 5},
        "env": {"name": "benchmarks.reliability.odd_answers", "count": 8},
        "eval": {"tasks": 2, "modes": ["sampled"], "env": {"first": 8}},
        "model": {"path": served.model},
        "learner": {"name": "tinker", "url": served.url, "rank": 4},
        "engine": {"name": "tinker", "max_context": 256},
        "sampling": {"max_tokens": 4},
        "limits": {"turns": 2, "turn_tokens": 4},
        "warmup": {"updates": 0},
        "batch": {"tasks": 4, "copies": 4},
        "credit": {"name": "grpo"},
        "optim": {"lr": 0.01, "weight_decay": 0.0},
    }
    for name, table in sections.items():
        tables[name] = table if "name" in table or name == "eval" else {**tables.get(name, {}), **table}
    return tables


def lines(folder, stage="train"):
    rows = read_metrics(folder / "run" / "metrics.jsonl").rows
    return [row for row in rows if row["stage"] == stage]


def close(one, two):
    """Are two lines of metrics equal up to rounding?"""
    assert one.keys() == two.keys()
    return all(
        math.isclose(one[key], two[key], rel_tol=1e-4, abs_tol=1e-6) if isinstance(one[key], float) else True
        for key in one
    )


def test_a_run_trains_at_a_service_and_a_resumed_run_goes_on(served, tmp_path, capsys, monkeypatch):
    tables = recipe(served, tmp_path)
    assert train(Settings(tables)).state.step == 2
    before, last = lines(tmp_path), tmp_path / "run" / "checkpoints" / "000002"
    shutil.rmtree(last)  # as if it had been killed in its second iteration
    assert train(Settings(tables), resume=True).state.step == 2
    after = lines(tmp_path)
    assert [row["step"] for row in after] == [0, 1]
    assert before[0] == after[0] and close(before[1], after[1])
    assert all(row["grad_norm"] > 0 for row in before)
    assert max(row["mismatch_max"] for row in before) < 1e-4  # sampler and trainer have the same weights

    graph = read_graph(sorted((tmp_path / "run" / "graphs").glob("*.safetensors"))[-1])
    for name in ("version_oldest", "version_newest"):  # an answer never mixes two versions of the weights
        assert graph.column(name).tolist() == [1] * len(graph)
    table = read_served(last / "policy")
    assert (table["url"], table["model"], table["sums"]) == (served.url, served.model, "tokens")
    assert not list(last.glob("**/*.safetensors"))  # the weights are at the service
    seen = served.faults.seen
    assert seen["unload_model"] == seen["create_model"] + seen["load_weights"]  # a service has room for few models
    capsys.readouterr()
    words = ["eval", "benchmarks.reliability.odd_answers", "--policy", str(tmp_path / "run"), "--tasks", "2", "--json"]
    closed, end = [], TinkerEngine.close
    monkeypatch.setattr(TinkerEngine, "close", lambda engine: (end(engine), closed.append(engine._owned.closed)))
    assert main([*words, "first=8"]) == 0
    assert closed == [True]  # the session at the service has ended
    report = json.loads(capsys.readouterr().out)
    assert (report["episodes"], report["policy"]["weights"]) == (2, table["sampler"])

    file = last / "policy" / "tinker.json"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        elsewhere = f"http://127.0.0.1:{taken.getsockname()[1]}"
        file.write_text(json.dumps({**table, "url": elsewhere}))
        assert main([*words, "first=8"]) == 2
    said = capsys.readouterr().err
    assert f"no training service answers at {elsewhere}" in said and f"correct url in {file}" in said


def test_a_run_that_is_stopped_frees_its_model(served, tmp_path, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("agentrl.train.learn", stopped)
    before = served.faults.seen.copy()
    tables = recipe(served, tmp_path, learner={"sums": "tokens"}, optim={"lr": 0.01, "grad_clip": 0.0})
    with pytest.raises(KeyboardInterrupt):
        train(Settings(tables))
    new = served.faults.seen - before
    assert new["unload_model"] == new["create_model"] == 1  # so that --resume has room at a service with one place


def test_a_resumed_run_tries_nothing_again(served, tmp_path):
    def one_more(iterations, **options):
        before = served.faults.seen.copy()
        train(Settings(recipe(served, tmp_path, learner={"sums": "tokens"}, run={"iterations": iterations})), **options)
        return (served.faults.seen - before)["unload_model"]

    assert one_more(1) > 1  # of small models, and of the run
    assert one_more(2, resume=True) == 1


@pytest.mark.slow
def test_rollouts_ahead_of_the_updates(served, tmp_path, capsys):
    run = train(Settings(recipe(served, tmp_path, run={"iterations": 4, "staleness": 1, "checkpoint_every": 0})))
    assert run.state.step == 4
    assert all(row["importance_mean"] > 0 for row in lines(tmp_path)[1:] if "importance_mean" in row)
    assert max(row["mismatch_max"] for row in lines(tmp_path)[1:]) > 1e-4  # the rollouts are one version old
    assert capsys.readouterr().err.count("costs, measured: the rest of the run") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "sections",
    [
        {
            "env": {"name": "tests.toys.letter_signal", "count": 8},
            "eval": {"env": {"first": 8}},
            "warmup": {"updates": 2, "episodes": 8, "expert": "hasty", "optim": {"lr": 0.02}},
        },
        {"rollout": {"name": "tree"}, "credit": {"name": "tree_grpo"}},
        {"update": {"kl_coef": 0.1, "epochs": 2, "minibatches": 2}},
        {"update": {"kl_coef": 0.1, "kl_reference": "initial"}},
        {"update": {"kl_coef": 0.1, "kl_in": "reward", "old_logprob": "engine"}},
        {"loss": {"name": "gspo"}, "learner": {"sums": "auto"}},
    ],
)
def test_kinds_of_runs(served, tmp_path, sections):
    run = train(Settings(recipe(served, tmp_path, **sections)))
    assert run.state.step == 2
    assert all(math.isfinite(row["loss"]) for row in lines(tmp_path))


@pytest.mark.slow
def test_a_run_whose_sampler_is_gone_is_evaluated_by_its_state(served, tmp_path, capsys):
    train(Settings(recipe(served, tmp_path, run={"iterations": 1})))
    file = tmp_path / "run" / "checkpoints" / "000001" / "policy" / "tinker.json"
    table = json.loads(file.read_text())
    file.write_text(json.dumps({**table, "sampler": "tinker://gone/sampler_weights/gone"}))
    words = [
        "eval",
        "benchmarks.reliability.odd_answers",
        "--policy",
        str(tmp_path / "run"),
        "--tasks",
        "2",
        "--json",
        "first=8",
    ]
    capsys.readouterr()
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 2
    file.write_text(json.dumps({**table, "sampler": "tinker://gone/x", "state": "tinker://gone/y"}))
    assert main(words) == 2
    assert "learner.keep_days" in capsys.readouterr().err


@pytest.mark.slow
def test_two_agents_with_policies_of_their_own(served, tmp_path):
    agents = {"walker": {"policy": "walker"}}
    tables = recipe(
        served,
        tmp_path,
        env={"name": "tests.toys.foreman", "count": 8},
        eval={"tasks": 2, "modes": ["sampled"], "env": {"count": 12}},
        agents=agents,
        warmup={"updates": 2, "episodes": 4, "expert": "straight"},
        credit={"name": "m_grpo", "align": 2},
        limits={"turns": 4, "turn_tokens": 8},
        engine={"max_context": 512},
    )
    assert train(Settings(tables)).state.step == 2
    row = lines(tmp_path, "clone")[0]
    assert {"policy/loss", "walker/loss"} <= row.keys()
    stored = sorted(path.parent.name for path in tmp_path.glob("run/checkpoints/000002/*/tinker.json"))
    assert stored == ["policy", "walker"]


@pytest.mark.slow
def test_a_program_with_sub_agents_plays(served, tmp_path):
    tables = recipe(
        served,
        tmp_path,
        env={"name": "tests.toys.sums", "split": "train"},
        eval={"tasks": 2, "modes": ["sampled"], "env": {"split": "test"}},
        agents={"main": {"agent": "tests.toys.programs:gathers"}},
        engine={"max_context": 1024},
        limits={"turns": 8, "turn_tokens": 6},
    )
    assert train(Settings(tables)).state.step == 2
    assert all(row["grad_norm"] > 0 and row["mismatch_max"] < 1e-4 for row in lines(tmp_path))


def test_a_model_that_the_service_lacks_is_named(served, tmp_path):
    with pytest.raises(ValueError, match=r"no base model 'other': set learner.model"):
        train(Settings(recipe(served, tmp_path, learner={"model": "other"})))
    assert not (tmp_path / "run").exists()


def test_a_context_that_the_service_cannot_read_is_refused(served, tmp_path):
    with pytest.raises(ValueError, match=r"set engine.max_context=\d+"):
        train(Settings(recipe(served, tmp_path, engine={"max_context": 4096})))
    assert not (tmp_path / "run").exists()


def test_rollouts_ahead_need_a_service_that_keeps_older_weights(served, tmp_path, monkeypatch):
    monkeypatch.setattr("agentrl.tinker.service_policies.keeps_snapshots", lambda service, model: False)
    with pytest.raises(ValueError, match=r"set run.staleness=0, or choose another service"):
        train(Settings(recipe(served, tmp_path, run={"staleness": 1})))
    assert not (tmp_path / "run").exists()
