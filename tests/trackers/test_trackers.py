"""Trackers: what each is given, the same id after --resume, and that one that fails never harms a run."""

import json
import math
import sqlite3
import sys
from pathlib import Path

import pytest

from agentrl import catalogue
from agentrl.cli import main
from agentrl.config import resolve
from agentrl.runs import frame
from agentrl.trackers import Tracked, TrackerFile, Trackers, tracked_id
from agentrl.trackers.wandb import Config as WandbConfig, chosen_mode
from tests.toys.runs import TOY, recipe

OWN = "tests.toys.recording_tracker"
LINES = [("train", 0, {"success": 0.5, "odd": math.nan}), ("eval/greedy", 1, {"success_rate": 0.25})]


@pytest.fixture
def toy(tmp_path):
    file = tmp_path / "toy.toml"
    sections = {
        "env": {"name": "tests.toys.walk"},
        "eval": {"env": {"first": 99}, "tasks": 2},
        "batch": {"tasks": 2, "copies": 2},
        "credit": {"name": "grpo"},
    }
    file.write_text(recipe(TOY, **sections))
    return file


def run(toy: Path, name: str, *words: str) -> Path:
    assert main(["train", str(toy), f"run.folder={toy.parent / 'runs'}", f"run.name={name}", *words]) == 0
    return toy.parent / "runs" / name


def lines(path: Path) -> list:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_tracker_of_ones_own_gets_every_number_and_the_same_id_after_resume(toy, capsys):
    folder = run(toy, "a", f"log.to=['{OWN}']", "run.iterations=1")
    recorded, metrics = lines(folder / "recorded.jsonl"), lines(folder / "metrics.jsonl")
    assert recorded[0] == {"id": recorded[0]["id"], "name": "a", "resumed": False, "seed": 0}
    assert recorded[-1] == "closed" and len(recorded) == len(metrics) + 2
    for (stage, step, values), row in zip(recorded[1:-1], metrics, strict=True):
        assert (stage, step) == (f"eval/{row['mode']}" if row["stage"] == "eval" else row["stage"], row["step"])
        numbers = {k: v for k, v in row.items() if isinstance(v, int | float) and k not in ("stage", "step")}
        assert values == pytest.approx(numbers, nan_ok=True, rel=1e-8)
    assert {row["stage"] for row in metrics} == {"eval", "train"}
    run(toy, "a", f"log.to=['{OWN}']", "--resume", "run.iterations=2")
    again = lines(folder / "recorded.jsonl")[len(recorded) :]
    assert again[0] == {**recorded[0], "resumed": True} and ["train", 1] in [one[:2] for one in again[1:-1]]


def test_a_tracker_that_fails_changes_no_byte_of_a_run_and_is_told_once_and_counted(toy, capsys):
    plain = run(toy, "plain", "run.iterations=1")
    capsys.readouterr()
    folder = run(
        toy, "tracked", "run.iterations=1", f"log.to=['{OWN}']", f"log.options={{'{OWN}'={{fail='odd_lines'}}}}"
    )
    told = capsys.readouterr().err
    assert (folder / "metrics.jsonl").read_bytes() == (plain / "metrics.jsonl").read_bytes()
    count = (len(lines(plain / "metrics.jsonl")) + 1) // 2
    assert told.count(f"warning: the tracker {OWN} could not store a line of metrics") == 1 and "Traceback" not in told
    assert f"trackers failed: {OWN} {count} times; the run is not affected" in told
    assert json.loads((folder / "trackers.json").read_text())["failures"] == {OWN: count}
    assert frame(folder).counts == {f"failures of the tracker {OWN}": count} and frame(folder).state == "finished"


@pytest.mark.parametrize(
    ("fail", "count", "what"), [("make", 1, "opened"), ("log", 20, "metrics"), ("close", 1, "closed")]
)
def test_every_kind_of_failure_is_caught_and_a_dead_tracker_is_left_alone(tmp_path, fail, count, what):
    entry = resolve(TrackerFile, {"name": OWN, "fail": fail})
    told: list[str] = []
    described = Tracked(id="a", name="a", folder=tmp_path, config={"run": {"seed": 0}})
    trackers = Trackers([entry], described, told.append)
    for step in range(50):
        trackers.log("train", step, {"x": 1.0})
    trackers.close()
    assert trackers.failures == {OWN: count}
    first, last = told
    assert what in first and "\n" not in first and last.startswith(f"trackers failed: {OWN} {count} times")
    assert json.loads((tmp_path / "trackers.json").read_text()) == {"id": "a", "failures": {OWN: count}}


def test_only_numbers_are_given_and_infinities_as_nan(tmp_path):
    tracked = Tracked(id="a", name="a", folder=tmp_path, config={"run": {"seed": 0}})
    trackers = Trackers([resolve(TrackerFile, {"name": OWN})], tracked, print)
    trackers.log("train", 3, {"a": 1, "b": math.inf, "c": "x", "d": True, "e": {"f": 1}})
    (_, (stage, step, values)) = lines(tmp_path / "recorded.jsonl")
    assert (stage, step) == ("train", 3) and values == pytest.approx({"a": 1.0, "b": math.nan}, nan_ok=True)


def test_the_id_is_kept_and_fits_every_tool(tmp_path):
    first, old = tracked_id(tmp_path, "a/b c\n…" + "x" * 300)
    assert not old and len(first) < 100 and not set(first) & set("/\\#?%: \n…")
    assert tracked_id(tmp_path, "another") == (first, True)
    for damaged in ("", "[]", '{"id": "../x y"}', '{"id": 3, "x'):
        (tmp_path / "trackers.json").write_text(damaged)
        assert tracked_id(tmp_path, "run")[1] is False


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["log.to=['wandbb']"], "unknown tracker 'wandbb': did you mean wandb?"),
        (["log.to=['trackio', 'trackio']"], "log.to names trackio 2 times: name it once"),
        (["log.options.wandb.project='x'"], "log.options.wandb: log.to names no tracker: add wandb to log.to"),
        (["log.to=['wandb']", "log.options.wandb.projekt='x'"], "unknown key log.options.wandb.projekt: did you mean"),
        (["log.to=['wandb']", "log.options.wandb.mode='of'"], "log.options.wandb.mode = 'of'"),
        (["log.to=['tests.toys.runs']"], "'tests.toys.runs' is no tracker: its file has no"),
    ],
)
def test_a_mistake_in_the_recipe_is_one_sentence(toy, capsys, words, sentence):
    assert main(["train", str(toy), "--dry-run", *words]) == 2
    told = capsys.readouterr().err
    assert sentence in told and told.count("\n") == 1


def test_a_missing_package_is_told_before_anything_is_written(toy, capsys, monkeypatch):
    monkeypatch.setattr("agentrl.trackers.guarded.find_spec", lambda name: None)
    place = f"run.folder={toy.parent / 'runs'}"
    assert main(["train", str(toy), place, "log.to=['wandb']"]) == 2
    assert "needs wandb: pip install 'agentrl-stepgraph[wandb]'" in capsys.readouterr().err
    assert not (toy.parent / "runs").exists()


def tracked(folder: Path, name: str, **options: object) -> list[str]:
    """Open, log and close twice under one id, as a resumed run does; what was told."""
    told: list[str] = []
    entry = resolve(TrackerFile, {"name": name, **options})
    for resumed in (False, True):
        described = Tracked(id="run-1a2b", name="run", folder=folder, config={"a": {"b": 1}}, resumed=resumed)
        trackers = Trackers([entry], described, told.append)
        for stage, step, values in LINES:
            trackers.log(stage, step + 2 * resumed, values)
        trackers.close()
    return told


def test_tensorboard_has_every_number(tmp_path):
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed: the extra tensorboard")
    assert tracked(tmp_path, "tensorboard") == []
    events = b"".join(path.read_bytes() for path in (tmp_path / "tensorboard").iterdir())
    assert events.count(b"train/success") == 2 and events.count(b"eval/greedy/success_rate") == 2


def test_trackio_keeps_one_run_in_its_local_database(tmp_path, monkeypatch, capsys):
    if "trackio" not in sys.modules:
        monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # it is read when the package is imported
    trackio = pytest.importorskip("trackio", reason="trackio is not installed: the extra trackio")
    assert tracked(tmp_path, "trackio", project="agentrl-test") == []
    assert capsys.readouterr().out == ""
    (database,) = Path(trackio.TRACKIO_DIR).glob("agentrl-test*.db")
    with sqlite3.connect(database) as connection:
        rows = connection.execute("select run_name, step, metrics from metrics order by id").fetchall()
    assert {name for name, _, _ in rows} == {"run-1a2b"} and [step for _, step, _ in rows] == [0, 1, 2, 3]
    assert json.loads(rows[1][2])["eval/greedy/success_rate"] == 0.25


def test_weights_and_biases_stores_offline_under_one_id(tmp_path, monkeypatch, capsys):
    pytest.importorskip("wandb", reason="wandb is not installed: the extra wandb")
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tracked(tmp_path, "wandb", mode="offline") == []
    assert capsys.readouterr().out == ""
    stored = sorted(path.name for path in (tmp_path / "wandb").glob("offline-run-*"))
    assert stored and all(name.endswith("-run-1a2b") for name in stored)


def test_without_a_key_nothing_is_sent(monkeypatch, tmp_path):
    for name in ("WANDB_API_KEY", "WANDB_MODE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert chosen_mode(WandbConfig()) == "offline" and chosen_mode(WandbConfig(mode="online")) == "online"
    (tmp_path / ".netrc").write_text("machine api.wandb.ai\n  login user\n  password x\n")
    (tmp_path / ".netrc").chmod(0o600)
    assert chosen_mode(WandbConfig()) == "online"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert chosen_mode(WandbConfig()) == "disabled"


@pytest.mark.parametrize("name", catalogue.names("tracker"))
def test_every_tracker_says_its_package_and_extra(name):
    entry = resolve(TrackerFile, {"name": name})
    extras = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert entry.hooks.package and f'\n{entry.hooks.extra} = ["{entry.hooks.package}' in extras
