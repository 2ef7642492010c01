"""Trajectories of other tools as steps."""

import json

import numpy as np
import pytest

from agentrl.exchange import from_messages, from_verl, steps_graph

CHAT = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "find x"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "search", "arguments": '{"q": 1}'}}],
    },
    {
        "role": "tool",
        "content": [{"type": "text", "text": "x is 3"}, {"type": "image_url", "image_url": "u"}],
    },
    {"role": "assistant", "content": "3"},
]


def test_messages_by_hand():
    rows = from_messages([{"group": "t", "messages": CHAT, "reward": 1}])
    assert rows == [
        {"group": "t", "episode": "0", "turn": 0, "reward": 0.0, "state": "find x",
         "action": 'search({"q": 1})', "next_state": "x is 3"},
        {"group": "t", "episode": "0", "turn": 1, "reward": 1.0, "state": "x is 3", "action": "3",
         "terminated": True},
    ]  # fmt: skip
    graph = steps_graph([json.dumps(row) for row in rows])
    assert graph.next_state[0] == graph.state[1]


@pytest.mark.parametrize(
    ("content", "state"),
    [
        ([{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "text", "text": None, "image_url": None}, {"type": "text", "text": "b"}], "\nb"),
        ([{"type": "text"}], ""),
    ],
)
def test_the_text_parts_of_a_message_are_its_state(content, state):
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "3"}]
    (row,) = from_messages([{"group": "t", "messages": messages, "reward": 1}])
    assert row.get("state", "") == state


def test_messages_with_rewards_a_turn_and_truncation():
    rows = from_messages([{"group": 7, "episode": "e", "messages": CHAT, "rewards": [0.5, -1], "truncated": True}])
    assert [row["reward"] for row in rows] == [0.5, -1]
    assert rows[-1]["truncated"] and "terminated" not in rows[-1]


@pytest.mark.parametrize(
    ("trajectory", "message"),
    [
        ({"group": "t", "messages": CHAT[:2], "reward": 1}, "trajectory 0: messages: there is no assistant"),
        ({"group": "t", "messages": CHAT, "rewards": [1]}, "trajectory 0: rewards: 2 assistant messages"),
        ({"group": "t", "messages": CHAT}, "trajectory 0: rewards: 2 assistant messages"),
        (
            {"group": "t", "messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}], "reward": 1},
            "trajectory 0: messages: the content .* whose text is no text",
        ),
    ],
)
def test_bad_messages(trajectory, message):
    with pytest.raises(ValueError, match=message):
        from_messages([trajectory])


def test_verl_rows_by_hand():
    batch = {
        "uid": ["g", "g", "g"],
        "traj_uid": ["a", "b", "a"],
        "token_level_rewards": np.array([[0, 0.25], [1, 0], [0.5, 0.5]]),
        "anchor_obs": ["s", "s", np.array([1, 2])],
        "is_action_valid": np.array([1, 0, 1]),
        "response_mask": np.array([[1, 1], [1, 0], [1, 1]]),
        "values": np.array([[1, 2], [3, 9], [5, 6]]),
    }
    assert from_verl(batch) == [
        {"group": "g", "episode": "a", "turn": 0, "reward": 0.25, "state": "s", "valid": True, "n_tokens": 2,
         "token_value": [1, 2]},
        {"group": "g", "episode": "b", "turn": 0, "reward": 1, "state": "s", "valid": False, "n_tokens": 1,
         "token_value": [3]},
        {"group": "g", "episode": "a", "turn": 1, "reward": 1, "state": "[1 2]", "valid": True, "n_tokens": 2,
         "token_value": [5, 6]},
    ]  # fmt: skip


def test_inactive_verl_rows_are_left_out():
    batch = {"uid": ["g"] * 2, "traj_uid": ["a"] * 2, "rewards": [1, 0], "active_masks": [True, False]}
    assert len(from_verl(batch)) == 1


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"uid": ["g"]}, "needs the column traj_uid"),
        ({"uid": ["g"], "traj_uid": ["a"]}, "needs token_level_rewards or rewards"),
        ({"uid": ["g"], "traj_uid": ["a"], "rewards": [1, 2]}, r"columns \['rewards'\]"),
    ],
)
def test_bad_verl_batches(batch, message):
    with pytest.raises(ValueError, match=message):
        from_verl(batch)
