"""HiPER: two levels of advantages."""

import numpy as np
import pytest

from tests.algorithms.credit.steps import advantage, by, chain, credit_of, forest


def test_by_hand():
    # gamma 0.5, both lambdas 1, segments {0} and {1, 2}; low V: 1, 1, 1; high V: 2, 4, (unused). low: turn 0
    # ends its segment: 0 + 0.5*4 - 1 = 1, cut. turn 2: 1 + 0 - 1 = 0; turn 1: 0 + 0.5*1 - 1 + 0.5*0 = -0.5
    # high: segment 1: 0 + 0.5*1 + 0 - 4 = -3.5; segment 0: 0 + 0.5*4 - 2 + 0.5*1*(-3.5) = -1.75
    rows = chain("g", "a", [0, 0, 1], value=[1, 1, 1], value_high=[2, 4, 9], segment_start=[False, True, False])
    rows[-1]["terminated"] = True
    out = credit_of("hiper", rows, gamma=0.5, lam=1, lam_segment=1)
    assert out["advantage"] == [1, -0.5, 0]
    assert out["return"] == [2, 0.5, 1]
    assert out["advantage_high"] == [-1.75, -3.5, 0]
    assert out["return_high"] == [0.25, 0.5, 0]


def test_three_ways_beyond_a_truncation():
    # one turn, reward 1, gamma 0.5, V_low 2, V_high 4, next_value 6
    rows = chain("g", "a", [1], value=[2], value_high=[4], segment_start=[True], truncated=[True], next_value=[6])
    for bootstrap, low, high in (("none", -1, -3), ("current", 1 + 1 - 2, 1 + 2 - 4), ("value", 2, 0)):
        out = credit_of("hiper", rows, gamma=0.5, bootstrap=bootstrap)
        assert (out["advantage"], out["advantage_high"]) == ([low], [high])


@pytest.mark.parametrize("seed", range(4))
def test_one_segment_an_episode_is_turn_gae_below(seed):
    rows = [row | {"segment_start": False} for row in forest(seed)]
    low = advantage("hiper", rows, gamma=0.9, lam=0.8)
    np.testing.assert_allclose(low, advantage("turn_ppo", rows, gamma=0.9, lam=0.8, bootstrap="none"), atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_a_segment_a_turn_is_turn_gae_above(seed):
    rows = [row | {"segment_start": True} for row in forest(seed)]
    high = credit_of("hiper", rows, gamma=0.9, lam_segment=0.8)["advantage_high"]
    as_value = [row | {"value": row["value_high"]} for row in rows]
    np.testing.assert_allclose(high, advantage("turn_ppo", as_value, gamma=0.9, lam=0.8, bootstrap="none"), atol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_equals_a_loop_over_segments(seed):
    rows = forest(seed, turns=7)
    out = credit_of("hiper", rows, gamma=0.9, lam=0.8, lam_segment=0.7, bootstrap="value")
    for indices in by(rows, "group", "episode").values():
        last = rows[indices[-1]]
        beyond = last["next_value"] if last.get("truncated") else 0.0
        cuts = [k for k, i in enumerate(indices) if k == 0 or rows[i]["segment_start"]]
        segments = [indices[a:b] for a, b in zip(cuts, [*cuts[1:], None], strict=True)]
        above = 0.0
        for number, segment in reversed(list(enumerate(segments))):
            after = beyond if number == len(segments) - 1 else rows[segments[number + 1][0]]["value_high"]
            total = sum(0.9**k * rows[i]["reward"] for k, i in enumerate(segment))
            delta = total + 0.9 ** len(segment) * after - rows[segment[0]]["value_high"]
            above = delta + 0.9 ** len(segment) * 0.7 * above
            assert out["advantage_high"][segment[0]] == pytest.approx(above, abs=1e-12)
            carry = 0.0
            for i in reversed(segment):
                carry = rows[i]["reward"] + 0.9 * after - rows[i]["value"] + 0.9 * 0.8 * carry
                after = rows[i]["value"]
                assert out["advantage"][i] == pytest.approx(carry, abs=1e-12)


def test_each_level_is_whitened_for_itself():
    rows = forest(1, turns=7)
    plain, white = credit_of("hiper", rows), credit_of("hiper", rows, whiten=True)
    first = {indices[0] for indices in by(rows, "group", "episode").values()}
    starts = [i for i, row in enumerate(rows) if i in first or row["segment_start"]]
    for part, chosen in (("advantage", list(range(len(rows)))), ("advantage_high", starts)):
        x = np.array(plain[part])[chosen]
        expected = (x - x.mean()) / np.sqrt(x.var() + 1e-8)
        np.testing.assert_allclose(np.array(white[part])[chosen], expected, atol=1e-12)
    assert white["return"] == plain["return"] and white["return_high"] == plain["return_high"]
