"""Stored rollouts played again: nothing differs in an environment that did not change, and what did is named."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from agentrl import store, world
from agentrl.cli import main
from agentrl.limits import Limits
from agentrl.policies import Random
from agentrl.records import build_graph
from agentrl.replay import replay
from agentrl.settings import Settings
from agentrl.types import Status
from tests.core.playing import entry, play_all, player

SUMS = "tests.core.toys.sums"
ON = entry(SUMS)
LIMITS = Limits(turns=3, calls=2, fault_share=1.0)


def played(limits: Limits, ending: Status):
    """Random episodes: answered, given up, spoiled, or ended by the limit."""
    by = player(ON, world.pool(ON, "inline", timeout_s=1), policy=Random(world.words(ON)), limits=limits, seed=4)
    records = play_all(by, [world.tasks(ON)[i] for i in range(12)], copies=4)
    assert {Status.DONE, ending} <= {r.ending for r in records}
    return build_graph(records)


@pytest.fixture(scope="module")
def graph():
    return played(LIMITS, Status.CALL_LIMIT)


def again(graph, on=ON, limits=LIMITS):
    pool = world.pool(on, "inline", timeout_s=1)
    tasks = {task.key: task for task in world.tasks(on)}
    return asyncio.run(replay(graph, pool, tasks, limits))


def test_nothing_differs_and_every_signal_is_recomputed(graph):
    found = again(graph)
    assert found.differences == [] and found.paths == 48 - found.skipped and found.paths > 30
    assert set(found.signals) == {"calls", "format", "length", "reward"}
    for name, (stored, now) in found.signals.items():
        np.testing.assert_array_equal(stored[~graph.failed()], now[~graph.failed()], err_msg=name)


def test_episodes_out_of_turns_are_judged_again():
    limits = Limits(turns=2, fault_share=1.0)
    assert again(played(limits, Status.TURN_LIMIT), limits=limits).differences == []


def test_a_changed_reward_signal_and_word_are_named(graph):
    row = int(np.flatnonzero(graph.turn == 1)[0])
    rewards, signal = graph.reward.copy(), graph.columns["signal/calls"].copy()
    rewards[row] += 1.0
    signal[row] += 2.0
    found = again(graph.with_columns(**{"reward": rewards, "signal/calls": signal}))
    what = [(d.what, d.turn) for d in found.differences]
    assert what == [("the reward", 1), ("the signal calls", 1)]
    assert f"was {rewards[row]}, is {rewards[row] - 1}" in str(found.differences[0])
    words = list(graph.texts["observation"])
    words[row] = "something else"
    graph.texts["observation"], kept = words, graph.texts["observation"]
    try:
        (one,) = again(graph).differences
    finally:
        graph.texts["observation"] = kept
    assert one.what == "the observation" and "was 'something else', is " in str(one)


@pytest.fixture
def run(graph, tmp_path) -> Path:
    """The folder that a run leaves."""
    tables = {
        "run": {"name": "stored", "folder": str(tmp_path)},
        "env": {"name": SUMS},
        "model": {"path": "nowhere"},
        "limits": {"turns": 3, "calls": 2, "fault_share": 1.0, "call_seconds": 1.0},
    }
    folder = tmp_path / "stored"
    (folder / "graphs").mkdir(parents=True)
    (folder / "config.toml").write_text(tomli_w.dumps(Settings(tables).dump()))
    store.write(graph, folder / "graphs" / "000000.safetensors")
    return folder


def test_the_command_replays_a_run_and_tells_what_differs(run, graph, capsys):
    before = (run / "graphs" / "000000.safetensors").read_bytes()
    assert main(["replay", str(run)]) == 0
    assert "no differences" in capsys.readouterr().out
    assert main(["replay", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == []
    store.write(graph.with_columns(reward=graph.reward + 1), run / "graphs" / "000001.safetensors")
    assert main(["replay", str(run), "--graphs", "1"]) == 1
    out = capsys.readouterr().out
    assert "the reward was" in out and "more; --json lists all" in out and "000000" not in out
    assert (run / "graphs" / "000000.safetensors").read_bytes() == before


def test_rescoring_needs_no_environment_and_changes_nothing_stored(run, graph, capsys):
    words = ["replay", str(run), "--rescore", "--json"]
    assert main(words) == 0
    same = json.loads(capsys.readouterr().out)
    assert same["changed"] == 0 and same["reward"]["stored"] == same["reward"]["now"]
    assert main([*words, "reward.name=weighted_sum", "reward.weights.format=2.0"]) == 0
    doubled = json.loads(capsys.readouterr().out)
    assert doubled["reward"]["now"] == pytest.approx(2 * doubled["signals"]["format"])
    assert doubled["signals"] == same["signals"]
    assert main([*words, "reward.name=weighted_sum", "reward.weights.formt=2.0"]) == 2
    assert "'formt': did you mean" in capsys.readouterr().err


def test_folders_that_are_no_runs(tmp_path, capsys):
    assert main(["replay", str(tmp_path)]) == 2
    assert "is no run" in capsys.readouterr().err
