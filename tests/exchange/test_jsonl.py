"""steps.jsonl: what is read, and what is said about bad lines."""

import json

import numpy as np
import pytest

from agentrl.exchange import read_steps, steps_graph
from agentrl.graph import DEMO
from agentrl.graph.step_graph import check_graph
from agentrl.types import Status

BASE = {"group": "g", "episode": "a", "turn": 0, "reward": 0.5}


def graph(*rows):
    return steps_graph([json.dumps(row) for row in rows])


def test_rows_are_put_in_order_and_remember_their_line():
    g = graph(BASE | {"turn": 1}, BASE | {"episode": "b"}, BASE)
    assert g.column("line").tolist() == [3, 1, 2]
    assert g.parent.tolist() == [-1, 0, -1]
    assert g.turn.tolist() == [0, 1, 0]


def test_next_states_are_the_next_rows_unless_given():
    g = graph(
        BASE | {"state": "s"},
        BASE | {"turn": 1, "state": "t", "next_state": "s"},
        BASE | {"turn": 2, "state": "u"},
    )
    s, t, u = g.state
    assert g.next_state.tolist() == [t, s, -1]
    assert len({s, t, u}) == 3
    assert [g.names["state"][i] for i in g.state] == ["s", "t", "u"]


def test_states_and_episodes_belong_to_their_group():
    g = graph(BASE | {"state": "s"}, BASE | {"group": "h", "state": "s"})
    assert len(set(g.state.tolist())) == 2
    assert len(set(g.episode.tolist())) == 2


def test_branches_callers_and_trees():
    g = graph(
        BASE | {"tree": "t"},
        BASE | {"turn": 1},
        BASE | {"episode": "b", "turn": 1, "parent": ["a", 0]},
        BASE | {"episode": "s", "agent": "sub", "caller": ["b", 1]},
        BASE | {"episode": "s", "agent": "sub", "turn": 1},
        BASE | {"episode": "c", "tree": "t"},
    )
    assert g.parent.tolist() == [-1, 0, 0, -1, 3, -1]
    assert g.caller.tolist() == [-1, -1, -1, 2, 2, -1]
    assert g.tree[0] == g.tree[2] == g.tree[5] != g.tree[3]
    assert g.rollout[3] == g.rollout[4] == g.rollout[2] != g.rollout[0]
    assert g.branched


def test_a_branch_may_stand_before_its_parent_in_the_file():
    g = graph(BASE | {"episode": "b", "turn": 1, "parent": ["a", 0]}, BASE)
    assert g.column("line").tolist() == [2, 1]
    assert g.parent.tolist() == [-1, 0]


def test_flags_status_and_optional_columns():
    g = graph(
        BASE | {"valid": False, "value": 1.5, "status": "parse_error", "weight": 2},
        BASE | {"turn": 1, "terminated": True, "truncated": True, "value": None, "status": "turn_limit"},
    )
    assert g.valid.tolist() == [False, True]
    assert g.weight.tolist() == [2, 1]
    assert (g.terminated.tolist(), g.truncated.tolist()) == ([False, True], [False, False])  # terminated wins
    assert g.status.tolist() == [Status.PARSE_ERROR, 0]
    assert g.ending.tolist() == [0, Status.TURN_LIMIT]
    np.testing.assert_array_equal(g.column("value"), [1.5, np.nan])
    assert not g.has("next_value")


def test_further_columns_kinds_endings_and_rollouts():
    g = graph(
        BASE | {"columns": {"x": 1, "seen": True, "half": 0.5}, "rollout": "r", "version_newest": 3},
        BASE | {"turn": 1, "columns": {"x": 2, "in_gradient": False}, "status": "parse_error", "ending": "turn_limit"},
        BASE | {"episode": "b", "columns": {"x": 3}, "kind": "demo", "policy": "expert", "rollout": "r"},
    )
    assert g.column("x").tolist() == [1, 2, 3] and g.column("x").dtype == np.int64
    assert g.column("seen").tolist() == [True, False, False]
    assert g.column("in_gradient").tolist() == [True, False, True]  # a step without the flag is trained
    np.testing.assert_array_equal(g.column("half"), [0.5, np.nan, np.nan])
    assert g.kind.tolist() == [0, 0, DEMO] and g.version_newest.tolist() == [3, 0, 0]
    assert (g.status[1], g.ending[1]) == (Status.PARSE_ERROR, Status.TURN_LIMIT)
    assert g.names["policy"] == ("agent", "expert") and g.names["agent"] == ("agent",)
    assert g.rollout[0] == g.rollout[2]


def test_scores_default_to_the_sum_of_rewards():
    g = graph(BASE | {"score": 7}, BASE | {"turn": 1}, BASE | {"episode": "b"}, BASE | {"episode": "b", "turn": 1})
    assert g.score.tolist() == [7, 7, 1, 1]


def test_tokens_are_sampled_and_follow_their_parent():
    g = graph(
        BASE | {"token_value": [1.0, 2.0]},
        BASE | {"turn": 1, "n_tokens": 1, "token_value": [3.0]},
        BASE | {"episode": "b", "turn": 1, "parent": ["a", 0], "n_tokens": 2},
    )
    assert g.tokens.offsets.tolist() == [0, 2, 3, 5]
    assert g.tokens.sampled.all()
    assert g.tokens.context.tolist() == [-1, 0, 0]
    assert g.tokens.context_tokens.tolist() == [0, 2, 2]
    np.testing.assert_array_equal(g.token_column("token_value"), [1, 2, 3, np.nan, np.nan])


def test_observation_tokens_come_before_the_sampled_ones():
    g = graph(
        BASE | {"token_value": [1.0, 2.0], "observation_tokens": 1},
        BASE | {"turn": 1, "n_tokens": 1, "observation_tokens": 2},
    )
    assert g.tokens.offsets.tolist() == [0, 3, 6]
    assert g.tokens.sampled.tolist() == [False, True, True, False, False, True]
    assert g.tokens.context_tokens.tolist() == [0, 3]
    np.testing.assert_array_equal(g.token_column("token_value"), [np.nan, 1, 2, np.nan, np.nan, np.nan])
    check_graph(g)


def test_blank_lines_are_skipped_and_counted(tmp_path):
    file = tmp_path / "steps.jsonl"
    file.write_text("\n" + json.dumps(BASE) + "\n\n" + json.dumps(BASE | {"turn": 1}) + "\n")
    assert read_steps(file).column("line").tolist() == [2, 4]


def test_only_a_line_feed_ends_a_line(tmp_path):
    file = tmp_path / "steps.jsonl"
    first, last = ({**BASE, "turn": turn, "action": "a\u2028b\x85c"} for turn in (0, 1))
    file.write_bytes("\r\n".join(json.dumps(row, ensure_ascii=False) for row in (first, last)).encode())
    graph = read_steps(file)
    assert graph.column("line").tolist() == [1, 2] and graph.names["action"] == ("a\u2028b\x85c",)


BAD = [
    ([], "holds no steps"),
    (["{"], "line 1: not JSON"),
    (["[1]"], "line 1: not a JSON object"),
    ([{"group": "g", "episode": "a", "turn": 0}], "line 1: reward: missing"),
    ([BASE | {"reward": None}], "line 1: reward: missing"),
    ([BASE, BASE | {"turn": 1, "reward": float("nan")}], "line 2: reward: must be a finite number"),
    ([BASE | {"reward": float("inf")}], "line 1: reward: must be a finite number"),
    ([BASE | {"reward": "1"}], "line 1: reward: must be a finite number"),
    ([BASE | {"turn": -1}], "line 1: turn: must be a whole number from 0"),
    ([BASE | {"turn": 0.5}], "line 1: turn: must be a whole number from 0"),
    ([BASE | {"valid": "yes"}], "line 1: valid: must be true or false"),
    ([BASE | {"weight": -1}], "line 1: weight: must be a finite number from 0"),
    ([BASE | {"status": "fine"}], "line 1: status: must be one of ok, parse_error"),
    ([BASE | {"parent": "a"}], r"line 1: parent: must be \[episode, turn\]"),
    ([BASE | {"token_value": [1, None]}], "line 1: token_value: must be a list of finite numbers"),
    ([BASE | {"n_tokens": 2, "token_value": [1]}], "line 1: token_value: 1 values for n_tokens = 2"),
    ([BASE | {"kind": "expert"}], "line 1: kind: must be one of played, candidate, probe, demo"),
    ([BASE | {"columns": {"a": "b"}}], "line 1: columns: must be an object of finite numbers, true or false"),
    ([BASE | {"columns": {"reward": 1.0}}], "line 1: columns: 'reward' is a field of its own"),
    ([BASE | {"termnated": True}], "line 1: termnated: unknown field, did you mean terminated?"),
    ([BASE, BASE], "line 2: turn: episode 'a' already has turn 0, on line 1"),
    ([BASE | {"turn": 1, "parent": ["z", 0]}], "line 1: parent: there is no step"),
    (
        [BASE | {"group": "h"}, BASE | {"episode": "b", "turn": 1, "parent": ["z", 0]}],
        "line 2: parent: there is no",
    ),
    ([BASE | {"caller": ["z", 0]}], "line 1: caller: there is no step"),
    ([BASE | {"caller": ["a", 0]}], "line 1: caller: an episode cannot call itself"),
    ([BASE | {"terminated": True}, BASE | {"turn": 1}], "line 1: terminated: set, yet episode 'a' goes on"),
    (
        [BASE | {"terminated": True}, BASE | {"turn": 1, "terminated": True}],
        "line 1: terminated: set, yet episode 'a' goes on",
    ),
    (
        [BASE | {"terminated": True}, BASE | {"episode": "b", "turn": 1, "parent": ["a", 0]}],
        "line 2: parent: the step on line 1 ended its episode",
    ),
    ([BASE, BASE | {"episode": "b", "parent": ["a", 0]}], "line 2: turn: must be its parent's turn"),
    (
        [BASE | {"parent": ["b", 0]}, BASE | {"episode": "b", "parent": ["a", 0]}],
        "line 2: parent: a cycle",
    ),
    ([BASE | {"parent": ["a", 0]}], "line 1: parent: a cycle"),
    (
        [BASE | {"caller": ["b", 0]}, BASE | {"episode": "b", "caller": ["a", 0]}],
        "line 2: caller: a cycle",
    ),
    (
        [BASE, BASE | {"turn": 1}, BASE | {"episode": "b"}, BASE | {"turn": 2, "parent": ["b", 0]}],
        "line 4: parent: only an episode's first step may branch off",
    ),
    (
        [BASE | {"score": 1}, BASE | {"turn": 1, "score": 2}],
        "line 2: score: 2, but 1 for the same episode on line 1",
    ),
]


@pytest.mark.parametrize(("rows", "message"), BAD)
def test_bad_input_names_line_and_field(rows, message):
    with pytest.raises(ValueError, match=message) as caught:
        steps_graph([row if isinstance(row, str) else json.dumps(row) for row in rows])
    assert "\n" not in str(caught.value)


def test_unknown_fields_far_from_ours_are_left_alone():
    assert len(graph(BASE | {"note": "mine"})) == 1
