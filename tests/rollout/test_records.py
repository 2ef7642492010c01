"""The step graph made of records, by hand: ids, tokens, windows, tails, what info becomes."""

import numpy as np
import pytest

from agentrl.graph import PLAYED
from agentrl.rollout import EpisodeRecord, StepRecord, build_graph
from agentrl.types import Generation, Observation, Status, Task

A, B = Observation(text="room A", state_key="a"), Observation(text="room B")


def step(seen: Observation, action: str, added=(), answer=(), *, continues: bool = False, **changes) -> StepRecord:
    generation = Generation(
        text=f"<{action}>",
        token_ids=np.array(answer, np.int64),
        logprobs=-np.arange(1.0, len(answer) + 1),
        allowed=changes.pop("allowed", None),
        policy_version=(1, 2),
        weight=changes.pop("weight", 1.0),
    )
    record = StepRecord(
        observation=seen,
        added=np.array(added, np.int64),
        continues=continues,
        generation=generation,
        action=action,
        valid=True,
        status=Status.OK,
    )
    for name, value in changes.items():
        setattr(record, name, value)
    return record


def episode(group: int, copy: int, *steps: StepRecord, **changes) -> EpisodeRecord:
    task = Task(key=f"task/{group}", env="toy", seed=group)
    return EpisodeRecord(task=task, group=group, copy=copy, steps=list(steps), **changes)


def test_ids_by_hand():
    # Two copies of task 0 and one of task 1, all starting in state "a"; ids are equal inside a group alone.
    graph = build_graph([
        episode(0, 0, step(A, "go"), step(B, "stay", reward=1.0, terminated=True), final=B),
        episode(0, 1, step(A, "stay"), final=A, ending=Status.TURN_LIMIT),
        episode(1, 0, step(A, "go"), final=B, ending=Status.ENV_ERROR),
    ])  # fmt: skip
    assert graph.group.tolist() == [0, 0, 0, 1] and graph.episode.tolist() == [0, 0, 1, 2]
    assert graph.rollout.tolist() == graph.tree.tolist() == [0, 0, 1, 2] and (graph.kind == PLAYED).all()
    assert graph.turn.tolist() == [0, 1, 0, 0] and graph.parent.tolist() == [-1, 0, -1, -1]
    assert graph.state[0] == graph.state[2] != graph.state[3]
    assert graph.next_state.tolist()[:3] == [graph.state[1], graph.state[1], graph.state[0]]
    assert [graph.names["state"][i] for i in graph.state] == ["a", "room B", "a", "a"]
    assert graph.action[1] == graph.action[2] and graph.action[0] != graph.action[3]
    assert graph.ending.tolist() == [0, Status.DONE, Status.TURN_LIMIT, Status.ENV_ERROR]
    assert graph.failed().tolist() == [False, False, False, True]
    assert graph.names["group"] == ("task/0", "task/1") and graph.names["episode"][1] == "task/0#1"
    assert list(graph.texts["answer"]) == ["<go>", "<stay>", "<stay>", "<go>"]
    assert (
        graph.tokens is None and graph.version_oldest.tolist() == [1] * 4 and graph.version_newest.tolist() == [2] * 4
    )


def test_tokens_of_a_chat_by_hand():
    allowed = (np.array([3, 4]), np.zeros(0, np.int64))
    graph = build_graph([
        episode(
            0,
            0,
            step(A, "x", [1, 2], [3, 9], allowed=allowed),
            step(B, "y", [5], [6], continues=True),
            tail=np.array([7]),
        ),
        episode(1, 0, step(A, "z", [1], [8])),
    ])  # fmt: skip
    tokens = graph.tokens
    assert tokens.ids.tolist() == [1, 2, 3, 9, 5, 6, 1, 8] and tokens.offsets.tolist() == [0, 4, 6, 8]
    assert tokens.sampled.tolist() == [False, False, True, True, False, True, False, True]
    assert tokens.logprobs.tolist() == [0, 0, -1, -2, 0, -1, 0, -1]
    assert tokens.context.tolist() == [-1, 0, -1] and tokens.context_tokens.tolist() == [0, 4, 0]
    assert tokens.allowed_offsets.tolist() == [0, 0, 0, 2, 2, 2, 2, 2, 2] and tokens.allowed_ids.tolist() == [
        3,
        4,
    ]
    assert tokens.path(1).tolist() == [1, 2, 3, 9, 5, 6]
    assert graph.tails["tail_offsets"].tolist() == [0, 1, 1] and graph.tails["tail_ids"].tolist() == [7]


def test_a_window_is_a_context_of_its_own():
    graph = build_graph([episode(0, 0, step(A, "x", [1, 2], [3]), step(B, "y", [1, 5], [6]))])
    assert graph.parent.tolist() == [-1, 0] and graph.tokens.context.tolist() == [-1, -1]
    assert graph.tokens.path(1).tolist() == [1, 5, 6]


def test_numbers_of_info_become_columns_and_the_rest_does_not():
    graph = build_graph([
        episode(0, 0, step(A, "x", info={"score": np.float32(0.5), "won": np.bool_(True), "words": "w"})),
        episode(0, 1, step(A, "x", info={"score": 2, "words": 3, "n": -(10**400)})),
    ])  # fmt: skip
    assert graph.column("info.score").tolist() == [0.5, 2.0]
    np.testing.assert_array_equal(graph.column("info.won"), [1.0, np.nan])
    np.testing.assert_array_equal(graph.column("info.words"), [np.nan, 3.0])
    np.testing.assert_array_equal(graph.column("info.n"), [np.nan, -np.inf])


def test_rows_keep_the_order_of_the_records_and_empty_episodes_leave_none():
    graph = build_graph([episode(0, 0, ending=Status.ENV_ERROR), episode(0, 1, step(A, "x")), episode(1, 0)])
    assert len(graph) == 1 and graph.names["episode"] == ("task/0#1",)
    assert len(build_graph([])) == 0


@pytest.mark.parametrize(
    ("told", "reward", "success"),
    [({"success": True}, 0.0, True), ({"success": False}, 5.0, False), ({}, 0.1, True), ({}, 0.0, False)],
)
def test_success_is_the_environments_word_else_a_positive_reward(told, reward, success):
    assert episode(0, 0, step(A, "x", info=told, reward=reward)).success is success
    assert episode(0, 0).success is False
