"""The queue of an equal-budget comparison on runs written by hand: what is chosen, run again and told."""

import json
from pathlib import Path

import pytest

from agentrl.config import validate
from agentrl.files import read_toml
from agentrl.settings import Settings
from benchmarks import comparison, learning

PLAN = {
    "title": "a against b",
    "tokens": 100,
    "seeds": [0, 1],
    "tuning": {"seed": 7, "set": ["eval.env.split=valid"]},
    "sides": {
        "a": {"recipe": "a.toml", "tried": [["x=1"], ["x=2"], ["x=3"]]},
        "b": {"recipe": "b.toml", "set": ["y=1"], "as": "a"},
    },
}


def write(folder: Path, won: str, env: str = "toy", split: str = "test") -> None:
    """A finished run: outcomes of four tasks in both modes, and two iterations."""
    (folder / "evaluations").mkdir(parents=True)
    outcomes = [{"task": f"{env}/{split}/{i}", "kind": "k", "success": one == "1"} for i, one in enumerate(won)]
    shown = {"benchmark": env, "panel": env, "outcomes": outcomes, "success_rate": won.count("1") / 4}
    shown |= {"mean_steps": 5.5, "mean_steps_success": 4.0}
    for mode in learning.MODES:
        (folder / "evaluations" / f"end-{mode}.json").write_text(json.dumps(shown))
    rows = [
        {"stage": "train", "generated_tokens": 60, "actions": 6, "episodes": 2, "success": success}
        for success in (0.0, 0.5)
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "timings.jsonl").write_text(json.dumps({"stage": "train", "update_cpu_s": 1.5}))


@pytest.fixture
def queue(tmp_path: Path) -> comparison.Queue:
    return comparison.Queue(validate(comparison.Plan, PLAN), tmp_path, 1)


def test_the_best_configuration_is_taken_by_both_and_finished_runs_are_found_again(queue, monkeypatch):
    for i, won in enumerate(("1000", "1110", "1101")):  # the second and third are equal: the first of them
        write(queue.folder / f"tune-a-{i}", won)
    for name, won in {"a-0": "1111", "a-1": "1100", "b-0": "1000"}.items():
        write(queue.folder / name, won)
    ran = []

    def play(command: list[str], **_: object) -> object:
        ran.append(command)
        write(queue.folder / "b-1", "1000")
        return type("Done", (), {"returncode": 0})

    monkeypatch.setattr(comparison.subprocess, "run", play)
    tuned = comparison.tune(queue)
    assert [one["mean"] for one in tuned["a"]] == [0.25, 0.75, 0.75] and tuned["b"] == []
    chosen = comparison.choices(queue.plan, tuned)
    assert chosen == {"a": ["x=2"], "b": ["x=2"]}
    runs = comparison.quote(queue, chosen)
    (command,) = ran  # b-1 alone was missing
    assert {"b.toml", "run.name=b-1", "run.seed=1", "run.tokens=100", "y=1", "x=2", "--resume"} <= set(command)
    assert "eval.env.split=valid" not in command
    result = comparison.summarise(queue.plan, runs)
    assert result["greedy"]["a"]["by_seed"] == {0: 1.0, 1: 0.5}
    found = result["greedy"]["differences"]["a - b"]
    assert found["by_seed"] == {0: 0.75, 1: 0.25}
    low, high = found["interval"]
    assert found["detectable"] == pytest.approx(2.8 * (high - low) / (2 * 1.96))
    assert result["spent"]["b-1"] == {
        "iterations": 2, "generated_tokens": 120, "actions": 12, "episodes": 4, "cpu_s": 1.5,
    }  # fmt: skip
    assert result["curves"]["b-1"] == [0.0, *[None] * 5, 0.5, *[None] * 3]  # of 100 tokens, begun after 0 and 60
    assert result["steps"]["b-1"]["sampled"] == {"mean_steps": 5.5, "mean_steps_success": 4.0}
    assert "mean +50.0%" in comparison.table({**result, "tuning": tuned})


def test_sides_start_from_one_clone_a_seed(tmp_path, monkeypatch):
    sides = {s: {"recipe": "a.toml", "set": ["model={path='{clone}/policy'}"]} for s in "ab"}
    plan = validate(comparison.Plan, {**PLAN, "sides": sides, "clone": {"recipe": "c.toml"}})
    queue, ran = comparison.Queue(plan, tmp_path, 1), []

    def play(command: list[str], **_: object) -> object:
        ran.append(command)
        write(tmp_path / next(word for word in command if word.startswith("run.name="))[9:], "1000")
        return type("Done", (), {"returncode": 0})

    monkeypatch.setattr(comparison.subprocess, "run", play)
    result = comparison.summarise(plan, comparison.quote(queue, {"a": [], "b": []}))
    assert result["greedy"]["clone of all"]["by_seed"] == {0: 0.25, 1: 0.25}
    cloned = [command for command in ran if "c.toml" in command]
    assert len(ran) == 6
    assert [("run.seed=0" in c, "run.seed=1" in c, "run.iterations=0" in c) for c in cloned] == [
        (True, False, True),
        (False, True, True),
    ]
    starts = {
        f"{s}-{seed}": f"model={{path='{tmp_path}/clone-{seed}/checkpoints/000000/policy'}}"
        for s in "ab"
        for seed in (0, 1)
    }
    for name, start in starts.items():
        (command,) = [c for c in ran if f"run.name={name}" in c]
        assert start in command


def test_the_same_tasks_may_come_from_two_environments_and_others_are_not_compared(queue):
    runs = {(s, seed): queue.folder / f"{s}-{seed}" for s in "ab" for seed in (0, 1)}
    for (s, seed), path in runs.items():
        write(path, "1000", env=s, split="test" if seed == 0 else s)
    alike = {key: path for key, path in runs.items() if key[1] == 0}
    plan = queue.plan.model_copy(update={"seeds": [0]})
    assert comparison.summarise(plan, alike)["greedy"]["differences"]["a - b"]["mean"] == 0
    with pytest.raises(ValueError, match="different tasks"):
        comparison.summarise(queue.plan, runs)


def test_a_run_that_fails_is_told_with_its_words(queue, monkeypatch):
    done = type("Done", (), {"returncode": 2, "stderr": "agentrl: no file a.toml"})
    monkeypatch.setattr(comparison.subprocess, "run", lambda *_, **__: done)
    with pytest.raises(RuntimeError, match=r"no file a\.toml"):
        comparison.tune(queue)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"tuning": {"seed": 0, "set": []}}, "reported seed"),
        ({"sides": {"a": {"recipe": "a.toml"}, "b": {"recipe": "b.toml", "as": "a"}}}, "tries configurations"),
        ({"sides": {"a": {"recipe": "a.toml", "tried": [[]] * 5}}}, "at most 4"),
    ],
)
def test_a_plan_that_is_not_fair_is_refused(change, told):
    with pytest.raises(ValueError, match=told):
        validate(comparison.Plan, {**PLAN, **change})


@pytest.mark.parametrize("path", sorted(Path("benchmarks/comparisons").glob("*.toml")), ids=lambda path: path.stem)
def test_every_configuration_of_every_plan_resolves(path):
    plan = validate(comparison.Plan, read_toml(path))
    for side in plan.sides.values():
        for tried in side.tried or [[]]:
            words = [*plan.set, *side.set, *tried, comparison.ENDLESS, f"run.tokens={plan.tokens}"]
            assert Settings.load(side.recipe, [word.replace("{clone}", "folder") for word in words]).tables.run.tokens


def test_every_pair_of_sides_is_compared(queue):
    plan = validate(comparison.Plan, {**PLAN, "sides": {s: {"recipe": "a.toml"} for s in "abc"}})
    for name, won in {"a-0": "1111", "a-1": "1111", "b-0": "1100", "b-1": "1100", "c-0": "0000", "c-1": "1000"}.items():
        write(queue.folder / name, won)
    runs = {(s, seed): queue.folder / f"{s}-{seed}" for s in "abc" for seed in (0, 1)}
    told = comparison.summarise(plan, runs)["sampled"]["differences"]
    assert {pair: found["mean"] for pair, found in told.items()} == {"a - b": 0.5, "a - c": 0.875, "b - c": 0.375}
