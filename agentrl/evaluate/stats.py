"""Intervals and paired comparisons for success rates; NumPy only."""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

Z95 = 1.959963984540054
BLOCK = 1_000_000  # largest number of resampled tasks in memory at once


class Interval(NamedTuple):
    """A 95% interval."""

    low: float
    high: float


def wilson(successes: float, n: int, z: float = Z95) -> Interval:
    """Wilson score interval of the proportion successes / n. It always contains this proportion; (0, 1) for n = 0.

    Source: Wilson 1927; Brown, Cai and DasGupta 2001, Eq. 4.
    """
    if n == 0:
        return Interval(0.0, 1.0)
    p, z2 = successes / n, z * z
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    # If no sample or every sample is a success, a bound equals p, and rounding could put it on the wrong side of p.
    return Interval(max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half)))


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact two-sided p-value of the hypothesis that a discordant pair favours a as often as b (McNemar 1947).

    A pair holds the outcomes of a and b on one task; it is discordant if only one of the two succeeded.

    Args:
        only_a, only_b: number of tasks on which only a, or only b, succeeded.
    """
    n, k = only_a + only_b, min(only_a, only_b)
    if n == 0:
        return 1.0
    logs = [math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) - n * math.log(2) for i in range(k + 1)]
    return min(1.0, 2 * sum(math.exp(x) for x in logs))


def minimum_detectable(difference: np.ndarray, power: float = 0.8) -> float:
    """The smallest true difference that a comparison of n tasks finds with probability `power`, at p < 0.05.

    (z_0.975 + z_power) s / sqrt(n), where s is the standard deviation of the paired differences (Cohen 1988, section
    2.3, for paired means). If the two policies have the same outcome on every task, s would be 0 even for few tasks.
    Then the upper 95% bound (Wilson) of the share of tasks with different outcomes replaces s^2.

    Args:
        difference: [n] differences of the outcomes of two policies on the same n tasks, each from -1 to 1.
        power: probability of finding the difference.

    Returns:
        The difference as a share, at most 1; 1 for fewer than two tasks.
    """
    n = len(difference)
    if n < 2:
        return 1.0
    variance = float(np.var(difference, ddof=1)) if np.any(difference) else wilson(0, n).high
    return min(1.0, (Z95 + NormalDist().inv_cdf(power)) * math.sqrt(variance / n))


def paired_bootstrap(a: np.ndarray, b: np.ndarray, *, seed: int = 0, samples: int = 10_000) -> Interval:
    """95% percentile interval of mean(a - b) over resampled tasks.

    Args:
        a, b: [n] outcomes of two policies on the same n tasks; or [runs, n]: then runs are resampled as well as tasks.
    """
    difference = np.atleast_2d(np.asarray(a, float) - np.asarray(b, float))  # [R, n]
    rng = np.random.default_rng(seed)
    runs, n = difference.shape
    means = np.empty(samples)
    if runs == 1:
        block = max(1, BLOCK // max(1, n))  # samples per block; the size of a block does not change the draws
        for start in range(0, samples, block):
            size = min(block, samples - start)
            means[start : start + size] = difference[0][rng.integers(n, size=(size, n))].mean(1)
    else:
        for i in range(samples):
            tasks = rng.integers(n, size=n)
            means[i] = difference[rng.integers(runs, size=runs)][:, tasks].mean()
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(low), float(high))
