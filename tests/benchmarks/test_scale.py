"""`benchmarks/scale.py` and `overlap.py` at toy size: the real loops run around the stand-ins of engine and learner."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.mark.parametrize("provision", [1.0, 1.25])
def test_one_batch_of_the_driver(path, provision):
    import scale

    found = scale.drive(40, provision)
    assert found["episodes"] == (40 if provision == 1 else 32) and found["steps"] > found["episodes"]
    assert found["driver_ms_per_step"] > 0 and found["steps_per_s"] > 0
    assert found["graph_bytes_per_step"] > 0 and found["request_bytes_per_step"] > 0


def test_playing_ahead_overlaps_with_updates(path, tmp_path):
    from stand_ins import Times, open_stand_in, recipe

    from agentrl.train import reinforce
    from agentrl.train_ahead import reinforce_ahead

    seconds = {}
    times = Times(token_s=0.02, most_turns=6, update_s=20.0)
    for name, staleness in (("plain", 0), ("ahead", 1)):
        run = {"iterations": 4, "staleness": staleness}
        run = open_stand_in(recipe(tmp_path, name, {"run": run, "batch": {"tasks": 2, "copies": 2}}), times)
        (reinforce_ahead if staleness else reinforce)(run)
        seconds[name] = max(run.policies.end_s.values())
        run.close()
    assert "long_tail" in sys.modules
    # updates alone take 4 x 20 s; ahead, the rollouts after the first are hidden behind them
    assert 80.0 < seconds["ahead"] < seconds["plain"]
