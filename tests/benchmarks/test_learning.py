"""The learning report of runs written by hand: rates, paired differences over the seeds both sides have, task types."""

import argparse
import json
from pathlib import Path

import pytest

from benchmarks import learning

KINDS = ("a", "a", "b", "b")


def shown(won: str) -> dict[str, object]:
    """A report of four games, won where there is a 1."""
    outcomes = [{"kind": kind, "success": one == "1"} for kind, one in zip(KINDS, won, strict=True)]
    told = {"success_rate": won.count("1") / 4, "interval": [0.0, 1.0], "measures": {}}
    return {"benchmark": "toy", "panel": "p", "outcomes": outcomes, **told}


def write(folder: Path, **reports: str) -> None:
    """A run with these reports in both modes, and 30 CPU seconds of cloning before 60 of training."""
    (folder / "evaluations").mkdir(parents=True)
    for name, won in reports.items():
        for mode in learning.MODES:
            (folder / "evaluations" / f"{name}-{mode}.json").write_text(json.dumps(shown(won)))
    rows = [("clone", 10.0), ("clone", 20.0), ("train", 60.0)]
    lines = [json.dumps({"stage": stage, "update_cpu_s": s, "update_s": 99.0}) for stage, s in rows]
    (folder / "timings.jsonl").write_text("\n".join(lines))


@pytest.fixture
def given(tmp_path: Path) -> argparse.Namespace:
    """Two seeds, the control on the first alone, no GRPO."""
    write(tmp_path / "rl-0", clone="0000", end="1110")
    write(tmp_path / "rl-1", clone="1000", end="1100")
    write(tmp_path / "control-0", end="0110")
    beside = {"control": [0, 1], "grpo": []}
    return argparse.Namespace(recipe=Path("toy.toml"), seeds=[0, 1], folder=tmp_path, runs_beside=beside)


def test_the_report_by_hand(given):
    runs = learning.finished(given)
    assert set(runs) == {(0, "rl"), (1, "rl"), (0, "control")}
    result = learning.summarise(given, runs, {**shown("1111"), "policy": {"policy": "teacher"}})
    greedy = result["greedy"]
    assert greedy["rl"]["by_seed"] == {0: 0.75, 1: 0.5}
    assert greedy["differences"]["rl - clone"]["by_seed"] == {0: 0.75, 1: 0.25}
    assert greedy["differences"]["rl - clone"]["mean"] == 0.5
    assert greedy["differences"]["rl - control"]["by_seed"] == {0: 0.25}  # 1110 against 0110
    assert greedy["differences"]["rl - demonstrator"]["mean"] == -0.375
    assert "grpo" not in greedy and "rl - grpo" not in greedy["differences"]
    # Type a: 11 and 11 after RL, 00 and 10 before. Type b: 10 and 00 after, nothing before.
    assert greedy["per_type"]["rl"] == {"a": 1.0, "b": 0.25}
    assert greedy["per_type"]["clone"] == {"a": 0.25, "b": 0.0}
    assert result["cpu_seconds"]["rl-0"] == {"clone": 30.0, "train": 60.0}
    told = learning.table({**result, "beside": {}})
    assert "a 100%  b 25%" in told and "teacher: 100.0%" in told


def test_the_control_gets_the_cpu_seconds_of_both_stages(given, tmp_path):
    recipe = tmp_path / "toy.toml"
    recipe.write_text("[warmup]\nupdates = 20\n")
    assert learning.equal_updates(recipe, tmp_path / "rl-0") == 60  # 90 s at 30 s for 20 updates


def test_no_finished_run_is_one_sentence(given, tmp_path):
    given.folder = tmp_path / "nowhere"
    with pytest.raises(SystemExit, match="holds no finished run of seed 0"):
        learning.finished(given)
