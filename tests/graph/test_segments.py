"""Segment primitives against plain loops, on random forests."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from agentrl.graph import (
    context_key,
    count,
    depth,
    following,
    gae,
    group_norm,
    keys,
    leave_one_out,
    mean,
    moments,
    scan,
    tree_up,
    whiten,
)


@st.composite
def forests(draw):
    """Parents of up to 20 rows, each before its children."""
    n = draw(st.integers(1, 20))
    return np.array([draw(st.integers(-1, i - 1)) for i in range(n)])


ROWS = st.integers(1, 30).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 4), min_size=n, max_size=n),
        st.lists(st.floats(-50, 50), min_size=n, max_size=n),
        st.lists(st.integers(0, 3), min_size=n, max_size=n),
    )
)


@settings(max_examples=100, deadline=None)
@given(ROWS)
def test_keys_number_distinct_tuples(rows):
    a, _, b = (np.array(column) for column in rows)
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    key = keys(a, b)
    assert len(set(key.tolist())) == len(set(pairs)) == key.max() + 1
    assert all((key[i] == key[0]) == (pairs[i] == pairs[0]) for i in range(len(pairs)))


@settings(max_examples=100, deadline=None)
@given(ROWS, st.sampled_from(["sample", "population", "none"]))
def test_weights_count_like_copies(rows, std):
    key, x, weight = (np.array(column) for column in rows)
    key = keys(key)
    copies = np.repeat(np.arange(len(x)), weight)
    if not len(copies):
        return
    kept = np.flatnonzero(weight > 0)
    weighted = group_norm(x, key, std=std, singleton="pass", weight=weight)
    copied = group_norm(x[copies], keys(key[copies]), std=std, singleton="pass")
    for i in kept:
        np.testing.assert_allclose(weighted[i], copied[np.flatnonzero(copies == i)], atol=1e-9)


@settings(max_examples=100, deadline=None)
@given(ROWS, st.sampled_from(["sample", "population"]))
def test_moments_equal_numpys(rows, std):
    key, x, _ = (np.array(column) for column in rows)
    m = moments(x, keys(key), std=std)
    for i in range(len(x)):
        own = x[key == key[i]]
        assert m.n[i] == len(own)
        np.testing.assert_allclose(m.mean[i], own.mean(), atol=1e-10)
        if len(own) > 1 and np.ptp(own) > 1e-9:
            np.testing.assert_allclose(m.std[i], own.std(ddof=std == "sample"), rtol=1e-9)
        elif np.ptp(own) == 0:
            assert m.constant[i] and m.std[i] == 1


@settings(max_examples=100, deadline=None)
@given(ROWS)
def test_leave_one_out_is_the_mean_of_the_others(rows):
    key, x, _ = (np.array(column) for column in rows)
    out = leave_one_out(x, keys(key))
    for i in range(len(x)):
        others = [x[j] for j in range(len(x)) if key[j] == key[i] and j != i]
        np.testing.assert_allclose(out[i], x[i] - np.mean(others) if others else 0.0, atol=1e-9)


def test_a_value_at_the_mean_is_exactly_zero():
    # 0.1 + 0.2 + 0.3 in floats has the mean 0.20000000000000004: the middle differs from it by rounding only
    assert group_norm(np.array([0.1, 0.2, 0.3]), np.zeros(3, int))[1] == 0.0


def test_a_group_that_nothing_counts_in_gets_zero():
    x, key = np.array([3.0, 1.0, 2.0]), np.array([0, 1, 1])
    out = group_norm(x, key, singleton="pass", std="none", weight=np.array([0.0, 1, 1]))
    assert out.tolist() == [0, -0.5, 0.5]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
def test_what_does_not_count_reaches_no_statistic(odd):
    # Group 0 counts 1 and 3 (mean 2, variance 2) beside an odd row; in group 1 nothing counts at all.
    x, key, weight = np.array([1.0, odd, 3.0, odd, 5.0]), np.array([0, 0, 0, 1, 1]), np.array([1.0, 0, 1, 0, 0])
    m = moments(x, key, weight)
    assert m.n.tolist() == [2, 2, 2, 0, 0] and m.mean.tolist() == [2, 2, 2, 0, 0]
    np.testing.assert_allclose(m.std, [2**0.5] * 3 + [1, 1])


@settings(max_examples=100, deadline=None)
@given(forests(), st.data())
def test_scan_depth_and_reductions_equal_recursion(parent, data):
    n = len(parent)
    x = np.array(data.draw(st.lists(st.floats(-5, 5), min_size=n, max_size=n)))
    decay = np.array(data.draw(st.lists(st.floats(0, 1), min_size=n, max_size=n)))
    below = [np.flatnonzero(parent == i).tolist() for i in range(n)]

    def total(i):
        return x[i] + decay[i] * sum(total(j) for j in below[i])

    def reduced(i, how):
        return how([reduced(j, how) for j in below[i]]) if below[i] else x[i]

    def ancestors(i):
        return 0 if parent[i] < 0 else 1 + ancestors(parent[i])

    np.testing.assert_allclose(scan(x, decay, parent), [total(i) for i in range(n)], atol=1e-9)
    assert depth(parent).tolist() == [ancestors(i) for i in range(n)]
    for name, how in (("mean", np.mean), ("sum", sum), ("max", max)):
        np.testing.assert_allclose(tree_up(x, parent, name), [reduced(i, how) for i in range(n)], atol=1e-9)


@settings(max_examples=100, deadline=None)
@given(forests(), st.integers(1, 4), st.data())
def test_context_keys_compare_the_last_states(parent, k, data):
    state = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(parent), max_size=len(parent))))

    def past(i):
        trail = []
        while i >= 0 and len(trail) < k:
            trail.append(state[i])
            i = parent[i]
        return tuple(trail)

    key = context_key(state, parent, k)
    trails = [past(i) for i in range(len(parent))]
    for i in range(len(parent)):
        assert [x == key[i] for x in key] == [t == trails[i] for t in trails]


def test_gae_by_hand():
    # delta = [0 + 0.5*2 - 1, 1 + 0 - 2] = [0, -1]; A_1 = -1; A_0 = 0 + 0.5*0.5*(-1) = -0.25
    parent, value = np.array([-1, 0]), np.array([1.0, 2.0])
    a = gae(np.array([0.0, 1.0]), value, following(value, parent), parent, 0.5, 0.5)
    np.testing.assert_allclose(a, [-0.25, -1.0])


def test_whiten_by_hand():
    # mean 2, sample variance 1 (1, 2, 3); population 2/3
    x = np.array([1.0, 2, 3])
    np.testing.assert_allclose(whiten(x, eps=0), [-1, 0, 1])
    np.testing.assert_allclose(whiten(x, eps=0, std="population"), [-(1.5**0.5), 0, 1.5**0.5])
    assert whiten(x[:1]).tolist() == [0]


def test_count_and_mean_by_hand():
    key, weight = np.array([0, 1, 1]), np.array([1.0, 3, 1])
    assert count(key, weight).tolist() == [1, 4, 4]
    assert mean(np.array([5.0, 1, 5]), key, weight).tolist() == [5, 2, 2]


def test_a_weight_in_leave_one_out_is_a_number_of_rows():
    # x = 1 (weight 3), 5 (weight 1): mean = 8/4 = 2; of 1: (1 - 2) * 4/3 = -4/3; of 5: (5 - 2) * 4/3 = 4
    x, key, weight = np.array([1.0, 5.0]), np.zeros(2, np.int64), np.array([3.0, 1.0])
    np.testing.assert_allclose(leave_one_out(x, key, weight=weight), [-4 / 3, 4.0])
    repeated = leave_one_out(np.array([1.0, 1.0, 1.0, 5.0]), np.zeros(4, np.int64))
    np.testing.assert_allclose(repeated[[0, 3]], [-4 / 3, 4.0])


@pytest.mark.parametrize("empty", [group_norm, leave_one_out])
def test_no_rows_give_no_rows(empty):
    assert len(empty(np.zeros(0), np.zeros(0, int))) == 0
