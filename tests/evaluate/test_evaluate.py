"""Reports: each task once, intervals, types, and whatever the environment spoiled counted apart."""

import asyncio
import json

import pytest

from agentrl.env import Limits, make_pool, panel_hash, panel_tasks, prompt_of, read_panel, tasks_of
from agentrl.evaluate import evaluate, wilson
from agentrl.rollout import ExpertActor
from tests.rollout.playing import FAULTY, WALK, entry, player, right
from tests.toys import faulty


def report(tasks, *, turns: int = 2, name: str = FAULTY, actor=None, policy=None):
    on = entry(name)
    limits = Limits(turns=turns, fault_share=1.0, retries=0)
    by = player(on, make_pool(on, "inline"), actor=actor, policy=policy, limits=limits)
    return asyncio.run(evaluate(by, on, tasks, {"policy": "right"}))


def test_a_report_by_hand():
    # Goals 1, 2, 3, 1, 2, 3 within two turns to the right: won, won, lost; task 3 is spoiled, task 5 is lost.
    tasks = [faulty.task(i, "raise" if i == 3 else "", 0) for i in range(6)]
    summary = report(tasks, policy=right()).summary()
    assert summary["episodes"] == 5 and summary["env_errors"] == 1
    assert summary["success_rate"] == 3 / 5 and summary["interval"] == list(wilson(3, 5))
    assert summary["per_type"] == {
        "goal 1": {"episodes": 1, "success_rate": 1.0, "interval": list(wilson(1, 1))},
        "goal 2": {"episodes": 2, "success_rate": 1.0, "interval": list(wilson(2, 2))},
        "goal 3": {"episodes": 2, "success_rate": 0.0, "interval": list(wilson(0, 2))},
    }
    assert summary["mean_steps"] == (1 + 2 + 2 + 2 + 2) / 5 and summary["mean_steps_success"] == (1 + 2 + 2) / 3
    assert summary["endings"] == {"done": 3, "env_error": 1, "turn_limit": 2}
    assert summary["truncated_share"] == 2 / 5 and summary["invalid_share"] == 0.0 and summary["mean_reward"] == 3 / 5
    assert json.loads(json.dumps(summary)) == summary


FAULT = "KeyError: 'lost' (faulty.py:30, in raise_)"


def test_a_spoiled_episode_is_never_a_success_and_says_why():
    (outcome,) = report([faulty.task(2, "raise", 1)], policy=right()).outcomes
    assert (outcome.success, outcome.ending, outcome.fault) == (False, "env_error", FAULT)


def test_nothing_scored_is_no_crash():
    summary = report([faulty.task(0, "raise", -1)]).summary()
    assert (summary["episodes"], summary["success_rate"], summary["interval"]) == (0, 0.0, [0.0, 1.0])
    assert summary["env_errors"] == 1 and summary["per_type"] == {}


def test_an_expert_wins_and_outcomes_come_in_panel_order():
    on = entry()
    tasks = list(reversed(tasks_of(on)))
    made = report(tasks, name=WALK, turns=9, actor=ExpertActor("straight", prompt_of(on)))
    assert [o.task for o in made.outcomes] == [t.key for t in tasks] and made.success().tolist() == [1.0] * 4
    assert made.panel == panel_hash([t.key for t in tasks]) and made.benchmark == WALK


def test_panels(tmp_path):
    on = entry()
    path = tmp_path / "panel.txt"
    path.write_text("walk/2  # the far one\n\n# a remark\nwalk/0\n")
    assert read_panel(path) == ["walk/2", "walk/0"]
    assert [t.key for t in panel_tasks(on, read_panel(path))] == ["walk/2", "walk/0"]
    (tmp_path / "panel.json").write_text('["walk/1"]')
    assert read_panel(tmp_path / "panel.json") == ["walk/1"]
    assert panel_hash(["a", "b"]) != panel_hash(["b", "a"])
    with pytest.raises(ValueError, match=r"1 of 2 panel tasks are unknown to .*'walk/9'"):
        panel_tasks(on, ["walk/0", "walk/9"])
    with pytest.raises(ValueError, match="no such panel"):
        read_panel(tmp_path / "absent")
    path.write_text("a\na\n")
    with pytest.raises(ValueError, match="lists a task twice"):
        read_panel(path)
    path.write_text("# nothing\n")
    with pytest.raises(ValueError, match="is empty"):
        read_panel(path)
    (tmp_path / "panel.json").write_text('{"not": "a list"}')
    with pytest.raises(ValueError, match="JSON list of task keys"):
        read_panel(tmp_path / "panel.json")
    (tmp_path / "panel.json").write_text("[1, ")
    with pytest.raises(ValueError, match="JSON list of task keys"):
        read_panel(tmp_path / "panel.json")
