"""POAD, bi-level GAE and GAE over tokens: credit per token."""

import numpy as np
import pytest

from tests.algorithms.credit.steps import by, chain, credit_of, forest

TWO_STEPS = chain("g", "a", [1, 2], token_value=[[1, 2], [3]], terminated=[None, True])


def test_poad_by_hand():
    # gamma 0.5, lam 0.5. Step 1: 2 + 0 - 3 = -1. Step 0, last token: 1 + 0.5*3 - 2 = 0.5, plus 0.25 * (-1) =
    # 0.25; first token: 2 - 1 = 1 (no discount inside), plus 0.5 * 0.25 = 1.125
    out = credit_of("poad", TWO_STEPS, gamma=0.5, lam=0.5)
    assert out["token_advantage"] == [[1.125, 0.25], [-1]]
    assert out["token_return"] == [[2.125, 2.25], [2]]
    assert out["advantage"] == [(1.125 + 0.25) / 2, -1]


def test_bilevel_by_hand():
    # turns: V = 2 and 3 (last tokens). gamma_turn 0.5, lam 1: A_1 = 2 - 3 = -1; A_0 = 1 + 0.5*3 - 2 +
    # 0.5*(-1) = 0. turn returns 2 and 2. Tokens, gamma_token 0.5: turn 0: last 2 - 2 = 0; first 0.5*2 - 1 +
    # 0.5*0 = 0; turn 1: -1
    out = credit_of("bilevel_gae", TWO_STEPS, gamma_turn=0.5, gamma_token=0.5, lam=1)
    assert out["token_advantage"] == [[0, 0], [-1]]
    assert out["token_return"] == [[1, 2], [2]]


@pytest.mark.parametrize("seed", range(6))
def test_poad_equals_a_loop(seed):
    rows = forest(seed)
    out = credit_of("poad", rows, gamma=0.9, lam=0.8)
    for indices in by(rows, "group", "episode").values():
        last = rows[indices[-1]]
        beyond, carry = last["next_value"] if last.get("truncated") else 0.0, 0.0
        for i in reversed(indices):
            values = rows[i]["token_value"]
            for j in reversed(range(len(values))):
                final = j == len(values) - 1
                after = 0.9 * beyond + rows[i]["reward"] if final else values[j + 1]
                carry = after - values[j] + (0.9 if final else 1.0) * 0.8 * carry
                assert out["token_advantage"][i][j] == pytest.approx(carry, abs=1e-12)
            beyond = values[0]


@pytest.mark.parametrize("seed", range(6))
def test_bilevel_equals_two_loops(seed):
    rows = forest(seed)
    out = credit_of("bilevel_gae", rows, gamma_turn=0.9, gamma_token=0.95, lam=0.8)
    for indices in by(rows, "group", "episode").values():
        last = rows[indices[-1]]
        beyond, carry = last["next_value"] if last.get("truncated") else 0.0, 0.0
        for i in reversed(indices):
            values = rows[i]["token_value"]
            carry = rows[i]["reward"] + 0.9 * beyond - values[-1] + 0.9 * 0.8 * carry
            beyond = values[-1]
            inner, after = 0.0, 0.0
            for j in reversed(range(len(values))):
                reward = carry + values[-1] if j == len(values) - 1 else 0.0
                inner = reward + 0.95 * after - values[j] + 0.95 * 0.8 * inner
                after = values[j]
                assert out["token_advantage"][i][j] == pytest.approx(inner, abs=1e-12)


def test_token_gae_by_hand():
    # gamma 0.5, lam 0.5. Step 1: 2 + 0 - 3 = -1. Step 0, last token: 1 + 0.5*3 - 2 = 0.5, plus 0.25 * (-1) = 0.25;
    # first token, discounted inside the turn too: 0.5*2 - 1 = 0, plus 0.25 * 0.25 = 0.0625
    out = credit_of("token_gae", TWO_STEPS, gamma=0.5, lam=0.5)
    assert out["token_advantage"] == [[0.0625, 0.25], [-1]]
    assert out["token_return"] == [[1.0625, 2.25], [2]]


@pytest.mark.parametrize("seed", range(6))
def test_token_gae_equals_a_loop_over_all_tokens_of_an_episode(seed):
    rows = forest(seed)
    out = credit_of("token_gae", rows, gamma=0.9, lam=0.8)
    for indices in by(rows, "group", "episode").values():
        last = rows[indices[-1]]
        line = [(i, j, v) for i in indices for j, v in enumerate(rows[i]["token_value"])]
        beyond, carry = last["next_value"] if last.get("truncated") else 0.0, 0.0
        for i, j, v in reversed(line):
            reward = rows[i]["reward"] if j == len(rows[i]["token_value"]) - 1 else 0.0
            carry = reward + 0.9 * beyond - v + 0.9 * 0.8 * carry
            beyond = v
            assert out["token_advantage"][i][j] == pytest.approx(carry, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
def test_without_a_discount_token_gae_is_poad(seed, lam):
    rows = forest(seed)
    ours, theirs = (credit_of(name, rows, gamma=1.0, lam=lam) for name in ("token_gae", "poad"))
    for name in ("token_advantage", "token_return"):
        for one, other in zip(ours[name], theirs[name], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_undiscounted_token_gae_is_the_rewards_to_come_minus_the_value(seed):
    rows = forest(seed)
    ends = {row["episode"]: i for i, row in enumerate(rows)}
    for i in ends.values():
        rows[i] |= {"terminated": True, "truncated": False}
    out = credit_of("token_gae", rows)
    for indices in by(rows, "group", "episode").values():
        for k, i in enumerate(indices):
            to_come = sum(rows[n]["reward"] for n in indices[k:])
            expected = [to_come - v for v in rows[i]["token_value"]]
            np.testing.assert_allclose(out["token_advantage"][i], expected, atol=1e-12)


@pytest.mark.parametrize("method", ["bilevel_gae", "token_gae"])
def test_tokens_are_whitened_and_returns_are_not(method):
    rows = forest(2)
    plain, white = credit_of(method, rows), credit_of(method, rows, whiten=True)
    flat = np.concatenate(plain["token_advantage"])
    expected = (flat - flat.mean()) / np.sqrt(flat.var(ddof=1) + 1e-8)
    np.testing.assert_allclose(np.concatenate(white["token_advantage"]), expected, atol=1e-12)
    assert white["token_return"] == plain["token_return"]


@pytest.mark.parametrize("method", ["poad", "bilevel_gae", "token_gae"])
def test_with_one_token_a_turn_all_are_turn_gae(method):
    rows = [row | {"token_value": [row["value"]]} for row in forest(4)]
    options = {"gamma_turn": 0.9} if method == "bilevel_gae" else {"gamma": 0.9}
    out = credit_of(method, rows, lam=0.8, **options)
    turn = credit_of("turn_ppo", rows, gamma=0.9, lam=0.8)["advantage"]
    np.testing.assert_allclose(out["advantage"], turn, atol=1e-12)


@pytest.mark.parametrize("method", ["poad", "bilevel_gae", "token_gae"])
def test_steps_without_tokens_or_values_are_named(method):
    with pytest.raises(ValueError, match=f"{method} needs the column 'token_value'"):
        credit_of(method, chain("g", "a", [1]))
    with pytest.raises(ValueError, match=r"line 2: token_value: .* no token"):
        credit_of(method, [*TWO_STEPS[:1], TWO_STEPS[1] | {"token_value": []}])
    with pytest.raises(ValueError, match=r"line 2: token_value: .* no value"):
        credit_of(
            method,
            [TWO_STEPS[0], {k: v for k, v in TWO_STEPS[1].items() if k != "token_value"} | {"n_tokens": 1}],
        )
