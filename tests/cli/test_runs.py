"""`agentrl runs`: what it lists and orders, and folders that cannot be read."""

import json
import os

import pytest

from agentrl.cli import main
from agentrl.evaluate import wilson
from agentrl.run import RunFolder
from agentrl.runs import listed_runs
from tests.runs.test_watching import held_by
from tests.toys.stored_run import evaluated, stored_run


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    for name, won, gamma in (("good", 9, 0.5), ("poor", 2, 0.9)):
        run = stored_run(folder / name, 2, credit={"name": "gigpo", "gamma": gamma})
        evaluated(run, "iteration 1", 1, won + 1)
        evaluated(run, "iteration 2", 2, won)
    stored_run(folder / "sweep" / "small", 1, credit={"name": "grpo"})
    evaluated(folder / "sweep" / "small", "end", 1, 1, of=1)
    (folder / "notes").mkdir()
    return folder


def lines(capsys, *words) -> list[dict]:
    assert main(["runs", *map(str, words), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def names(capsys, *words) -> list[str]:
    return [one["name"] for one in lines(capsys, *words)]


def test_a_run_is_described(runs, capsys):
    (good,) = lines(capsys, runs / "good")
    low, high = wilson(9, 10)
    assert good["path"] == str(runs / "good") and good["state"] == "stopped" and good["broken"] == ""
    assert (good["env"], good["credit"], good["model"]) == ("household", "gigpo", "tiny")
    assert (good["step"], good["iterations"], good["success"], good["training"]) == (2, 3, 0.9, pytest.approx(2 / 3))
    assert (good["low"], good["high"]) == pytest.approx((low, high)) and (good["best"], good["best_step"]) == (1.0, 1)
    graphs = sum(path.stat().st_size for path in (runs / "good" / "graphs").iterdir())
    assert good["bytes"]["graphs"] == graphs and good["bytes"]["checkpoints"] == 0
    assert good["bytes"]["all"] == sum(p.stat().st_size for p in (runs / "good").rglob("*") if p.is_file())
    held_by(runs / "good", os.getpid())
    assert lines(capsys, runs / "good")[0]["state"] == "running"


def test_order_and_best(runs, capsys):
    assert names(capsys, runs, "--sort", "success") == ["poor", "good", "small"]
    assert names(capsys, runs, "--sort", "-success") == ["small", "good", "poor"]
    assert names(capsys, runs, "--sort=-credit.gamma") == ["poor", "good", "small"]  # small has none
    assert names(capsys, runs, "--best") == ["good"]  # 9 of 10 says more than 1 of 1
    assert names(capsys, runs / "sweep", "--best") == ["small"]
    assert names(capsys, runs / "poor") == ["poor"]


def test_json_has_the_configuration(runs, capsys):
    (runs / "odd").mkdir()
    (runs / "odd" / "config.toml").write_text("[env]\nsince = 2026-01-02\nscale = [inf, 1.5]\n")
    (runs / "odd" / "metrics.jsonl").write_text("")
    config = {one["name"]: one["config"] for one in lines(capsys, runs)}
    assert config["poor"]["credit"] == {"name": "gigpo", "gamma": 0.9}
    assert config["odd"]["env"] == {"since": "2026-01-02", "scale": ["inf", 1.5]}


def test_folders_that_cannot_be_read_say_why(runs, capsys):
    (runs / "toml").mkdir()
    (runs / "toml" / "config.toml").write_bytes(b"\xff")
    (runs / "bare").mkdir()
    (runs / "bare" / "metrics.jsonl").write_text("")
    odd = '{"stage": "eval", "step": 1, "mode": "greedy", "success_rate": 1, "interval": 5}\n'
    for name, text in (("odd", odd), ("rows", "{}\n")):
        with (stored_run(runs / name, 0) / "metrics.jsonl").open("a") as file:
            file.write(text)
    (stored_run(runs / "versions", 0) / "versions.json").write_text("{")
    broken = {run.name: run.broken for run in listed_runs(runs) if run.broken}
    assert set(broken) == {"toml", "bare", "odd", "rows", "versions"}
    assert "is no UTF-8 text" in broken["toml"] and "has no config.toml" in broken["bare"]
    assert "metrics.jsonl is no line of metrics: it needs a stage and a step" in broken["rows"]
    assert main(["runs", str(runs)]) == 0
    out = capsys.readouterr().out
    assert out.count("cannot be read: ") == 5 and "8 runs, " in out
    assert "Traceback" not in out


def test_the_table_has_every_run_whole(runs, capsys):
    assert main(["runs", str(runs)]) == 0
    out = capsys.readouterr().out
    for words in ("sweep/small", "90.0% [60, 98]", "100.0% at 1", "2 of 3", "gigpo", "stopped", "3 runs, "):
        assert words in out, words
    assert main(["runs", str(runs / "notes")]) == 0
    assert capsys.readouterr().out == f"there are no runs in {runs / 'notes'}\n"


def test_a_new_run_stores_the_name_of_its_recipe(tmp_path, capsys):
    RunFolder(tmp_path / "a").open({"run": {"name": "a"}}, resume=False, recipe="alfworld-cpu")
    assert [one["recipe"] for one in lines(capsys, tmp_path)] == ["alfworld-cpu"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "no such folder: nowhere; name the folder that holds your runs"),
        (["runs", "--where", "success>0.5"], "--where is gone: choose with jq, as in agentrl runs --json | jq '"),
        (["runs", "--where=env=alfworld"], "agentrl runs --json | jq 'select(.success > 0.5)'"),
        (["runs", "--sort", "sucess"], "--sort sucess: no run has it: did you mean success?"),
        (["runs", "--sort", "qqqq"], "--sort qqqq: no run has it: use a column (path, name, "),
        (["runs", "--sort"], "expected one argument"),
    ],
)
def test_a_mistake_is_one_sentence(runs, monkeypatch, capsys, words, sentence):
    monkeypatch.chdir(runs.parent)
    assert main(["runs", *words]) == 2
    out, err = capsys.readouterr()
    assert sentence in err and err.count("\n") == 1 and out == ""
