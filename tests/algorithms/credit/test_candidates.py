"""Methods that compare actions sampled from one state see those that were not executed; no other does."""

import numpy as np
import pytest

from agentrl.credit import Credit, assign
from agentrl.graph import CANDIDATE, PLAYED, PROBE, StepGraph
from agentrl.trainer.annotation import trained_rows
from tests.graph.graphs import Row, build
from tests.toys.entries import credit_method


def graph() -> StepGraph:
    """One chain of two steps (rows 0, 3), two rivals of its first step, one of its second, a probe from its second.

    Rewards 3; 1, 2 at state 0. 5; 1 at state 1. The probe's 100 is nobody's business.
    """
    played = {"kind": PLAYED}
    rival = {"kind": CANDIDATE}
    return build([
        Row([1], [2], columns={**played, "reward": 3.0, "state": 0}),
        Row([1], [3], episode=1, columns={**rival, "reward": 1.0, "state": 0}),
        Row([1], [4], episode=2, columns={**rival, "reward": 2.0, "state": 0}),
        Row([5], [6], context=0, parent=0, episode=3, turn=1, columns={**rival, "reward": 1.0, "state": 1}),
        Row([5], [6], context=0, parent=0, episode=4, turn=1, columns={"kind": PROBE, "reward": 100.0, "state": 1}),
        Row([1], [7], episode=5, columns={**played, "reward": 0.0, "state": 0}),
    ])  # fmt: skip


def given(name: str, **options: object) -> Credit:
    return assign(credit_method(name, **options), graph())


def test_role_grpo_by_hand():
    # Turn 0: 3, 1, 2, 0, mean 1.5. Turn 1: a group of one, 0. The probe is not assigned.
    credit = given("role_grpo", std="none", key="group,turn,agent")
    np.testing.assert_allclose(credit.advantage, [1.5, -0.5, 0.5, 0, 0, -1.5])
    assert credit.assigned.tolist() == [True, True, True, True, False, True]
    np.testing.assert_allclose(credit.weight, [1, 1, 1, 1, 0, 1])  # every row once, shared or not


def test_tl_grpo_by_hand():
    # State 0: deviations 1.5, -0.5, 0.5, -1.5, population std sqrt((2.25 + 0.25 + 0.25 + 2.25) / 4) = sqrt(1.25).
    # Outcomes of the two played episodes: 3 and 0, population std 1.5, so +1 and -1, times 0.5; candidates have none.
    credit = given("tl_grpo", eps=0.0, key="state")
    turn = np.array([1.5, -0.5, 0.5, 0, 0, -1.5]) / np.sqrt(1.25)
    outcome = np.array([0.5, 0, 0, 0, 0, -0.5])
    np.testing.assert_allclose(credit.advantage, turn + outcome)


@pytest.mark.parametrize("name", ["grpo", "gigpo", "salt", "rloo", "turn_returns"])
def test_other_methods_give_what_they_would_without_candidates(name):
    rows = np.array([0, 5])
    alone = assign(credit_method(name), graph().take(rows))
    beside = given(name)
    np.testing.assert_allclose(beside.advantage[rows], alone.advantage)
    assert beside.assigned.tolist() == [True, False, False, False, False, True]
    assert beside.metrics == alone.metrics


def test_candidates_have_log_probs_of_the_trainer_and_probes_have_not():
    assert trained_rows(graph()).tolist() == [0, 1, 2, 3, 5]
