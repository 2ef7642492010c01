"""RLOO."""

import numpy as np
import pytest

from tests.algorithms.credit.steps import advantage, by, chain, first_rows, forest, scores


def test_by_hand():
    # scores 3, 1, 2: A = 3 - (1 + 2)/2, 1 - (3 + 2)/2, 2 - (3 + 1)/2
    rows = chain("g", "a", [3]) + chain("g", "b", [0, 1]) + chain("g", "c", [2])
    np.testing.assert_allclose(advantage("rloo", rows), [1.5, -1.5, -1.5, 0])


def test_penalty_on_one_row():
    # first rows score 1 and 0, mean 0.5, n/(n-1) = 2; the invalid row (1 - 0.1 - 0.5) * 2 = 0.8
    rows = chain("g", "a", [0, 1], valid=[True, False]) + chain("g", "b", [0])
    np.testing.assert_allclose(advantage("rloo", rows, invalid_penalty=0.1), [1, 0.8, -1])


def test_a_group_of_one():
    alone = chain("g", "a", [2])
    assert advantage("rloo", alone).tolist() == [0]
    assert advantage("rloo", alone, preset="official").tolist() == [2]


@pytest.mark.parametrize("seed", range(8))
def test_equals_a_loop_over_the_others(seed):
    rows = forest(seed)
    score, firsts = scores(rows), first_rows(rows)
    expected = np.zeros(len(rows))
    for (group, _), indices in by(rows, "group", "episode").items():
        own = min(indices, key=lambda i: rows[i]["turn"])
        others = [score[i] for i in firsts if rows[i]["group"] == group and i != own]
        expected[indices] = score[own] - sum(others) / len(others)
    np.testing.assert_allclose(advantage("rloo", rows), expected, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_is_mean_only_grpo_times_n_over_n_minus_one(seed):
    rows = forest(seed, episodes=4)
    np.testing.assert_allclose(advantage("rloo", rows), advantage("grpo", rows, std="none") * 4 / 3)
