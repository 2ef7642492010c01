"""Success is the environment's word where it gives one: rewards on the way to the goal are none."""

from dataclasses import replace

import numpy as np
import pytest

from agentrl import cli
from agentrl.config import resolve
from agentrl.graph import success_of
from agentrl.rollout import build_graph
from tests.graph.graphs import Row, build
from tests.rollout.test_records import A, B, episode, step

NAN = float("nan")


def graph():
    """Episode 0, of two rows, is paid on the way and fails; 1 succeeds at a loss; 2 and 3 are told nothing of."""
    return build([
        Row([1], [2], columns={"reward": 0.5}),
        Row([3], [4], context=0, parent=0, turn=1),
        Row([1], [2], episode=1, columns={"reward": -2.0}),
        Row([3], [4], context=2, parent=2, episode=1, turn=1, columns={"reward": 1.0}),
        Row([1], [2], episode=2, columns={"reward": 1.0}),
        Row([1], [2], episode=3),
    ]).with_columns(**{"info.success": np.array([1.0, 0.0, 0.0, 1.0, NAN, NAN])})  # fmt: skip


def test_the_word_at_the_end_decides_and_the_score_where_there_is_none():
    assert graph().score.tolist() == [0.5, 0.5, -1, -1, 1, 0]
    assert graph().succeeded.tolist() == [False, False, True, True, True, False]


def test_the_rule_by_hand():
    # The word decides where there is one; a score of exactly 0 is no success.
    word, score = np.array([1.0, 0.0, NAN, NAN, NAN]), np.array([-1.0, 9.0, 0.5, 0.0, -2.0])
    assert success_of(word, score).tolist() == [True, False, True, False, False]
    assert bool(success_of(NAN, 0.1)) and not bool(success_of(0.0, 0.1))


@pytest.mark.parametrize("seed", range(10))
def test_records_and_their_graph_agree_on_who_succeeded(seed):
    rng = np.random.default_rng(seed)
    words = ({}, {}, {"success": True}, {"success": False}, {"success": np.bool_(True)}, {"other": 3})
    records = []
    for copy in range(12):
        steps = [step(A if rng.random() < 0.5 else B, "x", info=words[rng.integers(len(words))]) for _ in range(3)]
        for one in steps:
            one.reward = float(rng.choice([-1.0, 0.0, 0.0, 1.0]))
        records.append(episode(0, copy, *steps[: rng.integers(1, 4)]))
    made = build_graph(records)
    assert made.succeeded[made.first].tolist() == [record.success for record in records]


def weight_after(success):
    """The curriculum's weight of the only bin, with floor 0.1 and nothing forgotten."""
    whole = replace(graph().with_columns(**{"info.success": np.array(success, float)}), names={"group": ("bin/0",)})
    entry = resolve("sampler", {"name": "curriculum", "floor": 0.1, "decay": 1.0})
    draws = entry.hooks.make(entry.config, [], 0)
    draws.observe(whole)
    return draws.weight("bin/1")


def test_the_curriculum_counts_successes_not_rewards():
    # Four episodes; v = (won + 0.5) / 5. By reward two would be won in both cases.
    assert weight_after([0, 1, 0, 1, 1, 1]) == pytest.approx(np.sqrt(0.9 * 0.1) + 0.1)
    assert weight_after([1, 0, 1, 0, 0, 0]) == pytest.approx(np.sqrt(0.1 * 0.9) + 0.1)
    assert weight_after([0, 1, 0, 0, 1, 0]) == pytest.approx(0.5 + 0.1)


def test_more_tasks_than_the_usual_panel_are_played_when_asked_for(capsys):
    assert cli.main(["eval", "alfworld", "--policy", "oracle", "--tasks", "203"]) == 0
    assert "203" in capsys.readouterr().out
