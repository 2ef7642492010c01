"""Intervals and tests against SciPy, and by their laws."""

import numpy as np
import pytest
from scipy import stats as scipy

from agentrl.evaluate import mcnemar, paired_bootstrap, wilson


@pytest.mark.parametrize(("won", "n"), [(0, 1), (1, 1), (0, 20), (20, 20), (7, 20), (121, 134), (1, 1000)])
def test_wilson_is_scipys(won, n):
    theirs = scipy.binomtest(won, n).proportion_ci(method="wilson")
    np.testing.assert_allclose(wilson(won, n), (theirs.low, theirs.high), atol=1e-12)


def test_wilson_of_a_published_number():
    # 121 of 134 unseen ALFWorld games: 90.3%, from 84.1% to 94.2%
    assert [round(x, 3) for x in wilson(121, 134)] == [0.841, 0.942]
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("n", [1, 3, 64, 100, 200, 1000])
def test_an_interval_contains_its_rate(n):
    """At none of 100 rounding put the lower bound above 0, where an error bar became negative."""
    assert wilson(0, n).low == 0.0 and wilson(n, n).high == 1.0
    assert all(wilson(won, n).low <= won / n <= wilson(won, n).high for won in range(n + 1))


@pytest.mark.parametrize(("a", "b"), [(0, 0), (1, 0), (5, 5), (6, 5), (3, 12), (0, 20), (40, 61), (900, 1000)])
def test_mcnemar_is_the_exact_binomial_test(a, b):
    theirs = scipy.binomtest(min(a, b), a + b, 0.5).pvalue if a + b else 1.0
    np.testing.assert_allclose(mcnemar(a, b), theirs, rtol=1e-9)
    assert mcnemar(a, b) == mcnemar(b, a)


def test_paired_bootstrap_is_close_to_scipys_on_the_same_pairs():
    rng = np.random.default_rng(0)
    a, b = rng.random(134) < 0.8, rng.random(134) < 0.6
    difference = a.astype(float) - b
    theirs = scipy.bootstrap(
        (difference,), np.mean, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    np.testing.assert_allclose(paired_bootstrap(a, b), theirs, atol=0.01)
    low, high = paired_bootstrap(a, b)
    assert low < difference.mean() < high and paired_bootstrap(a, b, seed=0) == (low, high)


def test_paired_bootstrap_of_equal_outcomes_is_zero():
    assert paired_bootstrap(np.ones(9), np.ones(9)) == (0.0, 0.0)


def test_resampling_runs_widens_the_interval():
    rng = np.random.default_rng(0)
    a = (rng.random((3, 100)) < np.array([[0.5], [0.7], [0.9]])).astype(float)  # three seeds that differ much
    b = (rng.random((3, 100)) < 0.5).astype(float)
    one, several = paired_bootstrap(a.mean(0), b.mean(0)), paired_bootstrap(a, b)
    assert several.high - several.low > 1.5 * (one.high - one.low)


@pytest.mark.parametrize("n", [1, 7, 300])
def test_the_bootstrap_of_one_run_equals_a_loop_over_samples(n):
    rng = np.random.default_rng(n)
    a, b = rng.random(n), rng.random(n)
    draws = np.random.default_rng(3)
    means = [(a - b)[draws.integers(n, size=n)].mean() for _ in range(4_000)]
    expected = np.quantile(means, [0.025, 0.975])
    assert tuple(paired_bootstrap(a, b, seed=3, samples=4_000)) == tuple(expected)
