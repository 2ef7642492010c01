"""GRPO."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.algorithms.credit.steps import advantage, by, chain, first_rows, forest, normal, scores

TWO_EPISODES = chain("g", "a", [0, 1]) + chain("g", "b", [0])


def test_by_hand():
    # scores 1 and 0: mean 0.5, sample std sqrt(0.25 + 0.25) = 0.70711; A = +-0.5 / 0.70711 = +-0.70711
    np.testing.assert_allclose(advantage("grpo", TWO_EPISODES, eps=0), [0.70710678] * 2 + [-0.70710678])
    # population std 0.5
    np.testing.assert_allclose(advantage("grpo", TWO_EPISODES, eps=0, std="population"), [1, 1, -1])


def test_step_unit_counts_rows():
    # rows 1, 1, 0: mean 2/3
    a = advantage("grpo", TWO_EPISODES, std="none", unit="step")
    np.testing.assert_allclose(a, [1 / 3, 1 / 3, -2 / 3])


def test_a_group_of_one():
    alone = chain("g", "a", [0, 2])
    assert advantage("grpo", alone).tolist() == [0, 0]
    assert advantage("grpo", alone, singleton="sign").tolist() == [1, 1]
    np.testing.assert_allclose(advantage("grpo", alone, singleton="pass", eps=0.5), [2 / 1.5] * 2)
    assert advantage("grpo", alone, singleton="pass", std="none").tolist() == [2, 2]


def test_weight_counts_like_copies():
    # weight 2 on a equals a second episode like a: scores 1, 1, 0
    weighted = [row | {"weight": 2} for row in chain("g", "a", [1])] + chain("g", "b", [0])
    copied = chain("g", "a", [1]) + chain("g", "b", [0]) + chain("g", "c", [1])
    np.testing.assert_allclose(advantage("grpo", weighted), advantage("grpo", copied)[:2])
    left_out = [row | {"weight": 0} for row in chain("g", "a", [9])] + TWO_EPISODES[2:] + chain("g", "c", [1])
    # b and c alone make the statistics: mean 0.5; a is measured by them
    np.testing.assert_allclose(advantage("grpo", left_out, std="none"), [8.5, -0.5, 0.5])


def test_a_penalty_beside_a_constant_group_does_not_explode():
    # first rows score 1 and 1, so mean 1, std 0: the second row of a, 1 - 0.1, gets -0.1 / (1 + eps), not
    # -0.1 / eps
    rows = chain("g", "a", [0, 1], valid=[True, False]) + chain("g", "b", [1])
    a = advantage("grpo", rows, invalid_penalty=0.1)
    np.testing.assert_allclose(a, [0, -0.1 / (1 + 1e-6), 0], atol=1e-15)
    np.testing.assert_allclose(advantage("grpo", rows, invalid_penalty=0.1, std="none"), [0, -0.1, 0], atol=1e-15)


@pytest.mark.parametrize("unit", ["episode", "step"])
@pytest.mark.parametrize("std", ["sample", "population", "none"])
@pytest.mark.parametrize("seed", range(5))
def test_equals_a_loop(seed, std, unit):
    rows = forest(seed)
    score = scores(rows)
    expected = np.zeros(len(rows))
    for indices in by(rows, "group").values():
        counted = [i for i in first_rows(rows) if i in indices] if unit == "episode" else indices
        of_score = dict(zip([score[i] for i in counted], normal([score[i] for i in counted], std), strict=True))
        expected[indices] = [of_score[score[i]] for i in indices]
    np.testing.assert_allclose(advantage("grpo", rows, std=std, unit=unit), expected, atol=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8), st.floats(0.1, 10), st.floats(-50, 50))
def test_centred_and_blind_to_scale_and_shift(rewards, scale, shift):
    rows = [row for i, r in enumerate(rewards) for row in chain("g", f"e{i}", [r])]
    moved = [row | {"reward": scale * row["reward"] + shift} for row in rows]
    a = advantage("grpo", rows, eps=0)
    assert abs(a.sum()) < 1e-8 * len(a)
    if np.ptp(rewards) > 1e-6:
        np.testing.assert_allclose(advantage("grpo", moved, eps=0), a, atol=1e-6)
