"""turn-PPO: GAE over turns."""

import numpy as np
import pytest

from tests.algorithms.credit.steps import advantage, by, chain, credit_of, forest, returns


def test_by_hand():
    # delta = [0 + 0.5*2 - 1, 1 + 0 - 2] = [0, -1]; A_1 = -1; A_0 = 0 + 0.5*0.5*(-1) = -0.25; return = A + V
    rows = chain("g", "a", [0, 1], value=[1, 2], terminated=[None, True])
    out = credit_of("turn_ppo", rows, gamma=0.5, lam=0.5)
    assert out["advantage"] == [-0.25, -1]
    assert out["return"] == [0.75, 1]


def test_truncation_bootstraps_and_termination_does_not():
    cut = chain("g", "a", [1], value=[2], truncated=[True], next_value=[4])
    assert advantage("turn_ppo", cut, gamma=0.5).tolist() == [1 + 0.5 * 4 - 2]
    assert advantage("turn_ppo", cut, gamma=0.5, bootstrap="none").tolist() == [-1]
    ended = chain("g", "a", [1], value=[2], terminated=[True], next_value=[4])
    assert advantage("turn_ppo", ended, gamma=0.5).tolist() == [-1]
    with pytest.raises(ValueError, match="line 1: next_value"):
        advantage("turn_ppo", chain("g", "a", [1], value=[2], truncated=[True]))


def test_whitening_is_over_turns_and_leaves_the_return():
    rows = forest(3)
    plain, white = credit_of("turn_ppo", rows), credit_of("turn_ppo", rows, whiten=True)
    a = np.array(plain["advantage"])
    np.testing.assert_allclose(white["advantage"], (a - a.mean()) / np.sqrt(a.var(ddof=1) + 1e-8), atol=1e-12)
    assert white["return"] == plain["return"]
    assert advantage("turn_ppo", rows[:1], bootstrap="none", whiten=True).tolist() == [0]


@pytest.mark.parametrize("seed", range(6))
def test_lambda_one_is_return_minus_value(seed):
    rows = forest(seed)
    expected = np.array(returns(rows, 0.9)) - [row["value"] for row in rows]
    np.testing.assert_allclose(advantage("turn_ppo", rows, gamma=0.9, lam=1, bootstrap="none"), expected, atol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_equals_a_loop(seed):
    rows = forest(seed)
    expected = np.zeros(len(rows))
    for indices in by(rows, "group", "episode").values():
        last = rows[indices[-1]]
        beyond, carry = last["next_value"] if last.get("truncated") else 0.0, 0.0
        for i in reversed(indices):
            delta = rows[i]["reward"] + 0.99 * beyond - rows[i]["value"]
            carry = expected[i] = delta + 0.99 * 0.9 * carry
            beyond = rows[i]["value"]
    np.testing.assert_allclose(advantage("turn_ppo", rows), expected, atol=1e-12)
