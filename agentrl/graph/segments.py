"""Statistics over groups of rows, and sums along chains and trees, with which credit methods are written.

The functions use NumPy and float64. Only `revisits` loops over rows in Python.

Letters: N rows (steps), K groups. A *key* is a dense int64 id per row; equal ids mean the same group.
"""

from typing import Literal, NamedTuple

import numpy as np

Std = Literal["sample", "population", "none"]
Singleton = Literal["zero", "pass", "sign"]

ROUNDING = 1e-12  # a sum of weights that is this near to a whole number, as a share of it, is the whole number
CONSTANT = 1e-12  # largest spread of a constant group, as a share of its largest |value| or of 1, whichever is larger


def keys(*columns: np.ndarray) -> np.ndarray:
    """Dense ids of the distinct tuples of `columns`, numbered in ascending order of the tuples.

    Args:
        columns: each [N], of any sortable type; at least one.

    Returns:
        [N] int64 in 0..K-1.
    """
    ids = np.unique(columns[0], return_inverse=True)[1].reshape(-1).astype(np.int64)  # [N]
    for column in columns[1:]:
        other = np.unique(column, return_inverse=True)[1].reshape(-1)  # [N]
        width = int(other.max(initial=-1)) + 1
        ids = np.unique(ids * width + other, return_inverse=True)[1].reshape(-1)  # [N]
    return ids


def count(key: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Sum of `weight` (default 1) over each row's group: [N] float64."""
    total: np.ndarray = np.bincount(key, weight, minlength=1).astype(np.float64)[key]  # [N]
    return total


def mean(x: np.ndarray, key: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Weighted mean over each row's group, [N]; NaN for groups whose weights sum to 0."""
    w = np.ones(len(x)) if weight is None else weight
    with np.errstate(invalid="ignore", divide="ignore"):
        mu: np.ndarray = (np.bincount(key, w * x, minlength=1) / np.bincount(key, w, minlength=1))[key]  # [N]
    return mu


def group_max(x: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Maximum over each row's group, [N]; -inf if all rows of the group are -inf."""
    top = np.full(int(key.max(initial=-1)) + 1, -np.inf)  # [K]
    np.maximum.at(top, key, x)
    on_rows: np.ndarray = top[key]  # [N]
    return on_rows


class Moments(NamedTuple):
    """Statistics of each row's group, all [N].

    Attributes:
        n: sum of the weights.
        mean: weighted mean; for a constant group exactly its largest value; 0 if the weights sum to 0.
        std: standard deviation; 1 for groups without spread (see `moments`).
        constant: are all counted values of the group equal, up to rounding?
        tolerance: the largest difference that counts as rounding.
    """

    n: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    constant: np.ndarray
    tolerance: np.ndarray


def moments(x: np.ndarray, key: np.ndarray, weight: np.ndarray | None = None, std: Std = "sample") -> Moments:
    """Weighted moments of each row's group, in two passes (no cancellation).

    `weight` is a frequency: the sample variance divides by the sum of the weights minus 1. Rows of weight 0 do not
    count. The standard deviation is 1 for a constant group, for a group of one, and for every group if `std="none"`.
    """
    w = np.ones(len(x)) if weight is None else np.asarray(weight, np.float64)
    counted = w > 0  # [N]
    high = group_max(np.where(counted, x, -np.inf), key)  # [N]
    low = -group_max(np.where(counted, -x, -np.inf), key)  # [N]
    with np.errstate(invalid="ignore"):
        tolerance = CONSTANT * np.maximum(1.0, np.nan_to_num(np.maximum(np.abs(high), np.abs(low)), posinf=1.0))
        constant = (high - low) <= tolerance  # [N]
    n = count(key, w)  # [N]
    n = np.where(np.abs(n - np.rint(n)) <= ROUNDING * n, np.rint(n), n)  # three weights of 1/3 are 1, not 0.9999
    mu = np.where(constant & (n > 0), high, np.nan_to_num(mean(np.where(counted, x, 0.0), key, w)))  # [N]
    if std == "none":
        return Moments(n, mu, np.ones(len(x)), constant, tolerance)
    apart = np.where(counted, x, mu) - mu  # [N] a row that does not count may hold inf or NaN, and 0 * inf is NaN
    square = np.bincount(key, w * apart**2, minlength=1)[key]  # [N]
    divisor = n - 1 if std == "sample" else n  # [N]
    spread = (divisor > 0) & ~constant  # [N]
    sigma = np.sqrt(square / np.where(spread, divisor, 1.0))  # [N]
    return Moments(n, mu, np.where(spread, sigma, 1.0), constant, tolerance)


def centred(x: np.ndarray, m: Moments) -> np.ndarray:
    """x minus its group's mean, exactly 0 where the difference is rounding: [N]."""
    difference = x - m.mean  # [N]
    return np.where(np.abs(difference) <= m.tolerance, 0.0, difference)


def alone(x: np.ndarray, singleton: Singleton) -> np.ndarray:
    """[N] the unscaled result for groups of one: 0, the value x itself, or the sign of x."""
    if singleton == "pass":
        return x
    return np.sign(x) if singleton == "sign" else np.zeros(len(x))


def group_norm(
    x: np.ndarray,
    key: np.ndarray,
    *,
    std: Std = "sample",
    eps: float = 1e-6,
    singleton: Singleton = "zero",
    weight: np.ndarray | None = None,
    outside: np.ndarray | bool = False,
) -> np.ndarray:
    """(x - mean) / (std + eps) inside each group; `std="none"` only subtracts the mean.

    If a group has two or more counted rows, all equal up to rounding, these rows get exactly 0. Released
    implementations of this normalisation compute in float32 and give such rows up to 0.15. A row of weight 0 that
    differs from such a constant group gets (x - mean) / (1 + eps). If it were divided by the group's standard deviation
    of 0 + eps, a format penalty of 0.1 would become an advantage of -100,000.

    Args:
        x: [N] float.
        key: [N] int64 group ids.
        std: sample (n - 1), population (n) or none.
        eps: added to the standard deviation.
        singleton: what a group of one gets: 0 (`zero`), x normalised with mean 0 and standard deviation 1 (`pass`), or
            the sign of x (`sign`).
        weight: [N] frequency of each row in the statistics; a row of weight 0 is left out of the statistics and still
            normalised by them. A group whose rows all have weight 0 gets 0.
        outside: [N] bool, rows whose episode does not count, such as a stored rollout's. Beside one counted row they
            get their difference from it. (Where an episode counts by its first row, its other rows are not outside.)

    Returns:
        [N] float64.
    """
    x = np.asarray(x, np.float64)
    if not len(x):
        return x
    m = moments(x, key, weight, std)
    scale = m.std + eps if std != "none" else m.std  # [N]
    lone = alone(x, singleton) / (1.0 + eps if singleton == "pass" and std != "none" else 1.0)  # [N]
    return np.select([m.n <= 0, (m.n <= 1) & ~np.asarray(outside)], [0.0, lone], centred(x, m) / scale)


def leave_one_out(
    x: np.ndarray,
    key: np.ndarray,
    *,
    singleton: Singleton = "zero",
    weight: np.ndarray | None = None,
    outside: np.ndarray | bool = False,
) -> np.ndarray:
    """[N] x minus the mean of the *other* rows of its group (RLOO): (x - mean) * n / (n - 1), n the sum of its weights.

    A row of weight 3 counts as three rows with this x, of which 2 are among the n - 1 others. To a row of `outside` all
    counted rows are others: it gets x - mean. `weight`, `singleton` and `outside` mean the same as in `group_norm`.
    """
    x = np.asarray(x, np.float64)
    if not len(x):
        return x
    m = moments(x, key, weight, "none")
    factor = m.n / np.where(m.n > 1, m.n - 1, 1.0)  # [N]
    away, apart = centred(x, m), np.broadcast_to(outside, x.shape)  # [N]
    return np.select([m.n <= 0, apart, m.n <= 1], [0.0, away, alone(x, singleton)], away * factor)


def depth(parent: np.ndarray) -> np.ndarray:
    """[N] int64, the number of ancestors of each row (pointer doubling: log2(depth) passes)."""
    steps = (parent >= 0).astype(np.int64)  # [N]
    jump = np.where(parent >= 0, parent, np.arange(len(parent)))  # [N]
    while True:
        further = steps[jump]  # [N]
        if not further.any():
            return steps
        steps = steps + further
        jump = jump[jump]


def levels(parent: np.ndarray) -> list[np.ndarray]:
    """Rows of each depth, roots first."""
    d = depth(parent)
    order = np.argsort(d, kind="stable")  # [N]
    return np.split(order, np.cumsum(np.bincount(d))[:-1]) if len(parent) else []


def scan(x: np.ndarray, decay: np.ndarray | float, parent: np.ndarray) -> np.ndarray:
    """y[t] = x[t] + decay[t] * y[next(t)], backwards along each chain; for example, discounted returns or GAE.

    Args:
        x: [N] float.
        decay: [N] or one number; `decay[t]` multiplies the result of the row after t.
        parent: [N], the previous row of the chain, -1 at its start. If a row has several children, their results are
            added.

    Returns:
        [N] float64.
    """
    y = np.array(x, np.float64)  # [N]
    d = np.broadcast_to(np.asarray(decay, np.float64), y.shape)  # [N]
    rows_at = levels(parent)
    branches = bool(np.bincount(parent[parent >= 0]).max(initial=0) > 1)
    for rows in reversed(rows_at[1:]):
        above = parent[rows]
        if branches:
            np.add.at(y, above, d[above] * y[rows])
        else:
            y[above] += d[above] * y[rows]
    return y


def following(x: np.ndarray, parent: np.ndarray, end: np.ndarray | float = 0.0) -> np.ndarray:
    """[N] float64, x of the next row of the chain; `end` ([N] or one number) on last rows.
    If a row has several children, the result is x of the last child.
    """
    y = np.array(np.broadcast_to(np.asarray(end, np.float64), x.shape))  # [N]
    inner = parent >= 0
    y[parent[inner]] = x[inner]
    return y


def tree_up(x: np.ndarray, parent: np.ndarray, how: Literal["mean", "sum", "max"] = "mean") -> np.ndarray:
    """[N] float64, bottom-up reduction of a forest.

    A leaf keeps its x; an inner row gets the mean, sum or maximum of the results of its *children*, without its own x.
    """
    y = np.array(x, np.float64)  # [N]
    for rows in reversed(levels(parent)[1:]):
        above = parent[rows]
        inner = np.unique(above)
        if how == "max":
            y[inner] = -np.inf
            np.maximum.at(y, above, y[rows])
            continue
        y[inner] = 0.0
        np.add.at(y, above, y[rows])
        if how == "mean":
            y[inner] /= np.bincount(above)[inner]
    return y


def tree_down(x: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """[N] float64, the sum of x over the path from the root to each row of a forest; root and row are included."""
    y = np.array(x, np.float64)  # [N]
    for rows in levels(parent)[1:]:
        y[rows] += y[parent[rows]]
    return y


def gae(
    reward: np.ndarray, value: np.ndarray, after: np.ndarray, parent: np.ndarray, gamma: float, lam: float
) -> np.ndarray:
    """Generalised advantage estimate along each chain: [N] float64.

    Source: Schulman et al., arXiv:1506.02438, Eq. 16.

    Args:
        reward: [N], the reward of the row's step.
        value: [N], V of the row's state.
        after: [N], V of the state after the row: the next row's value, or the bootstrap value on last rows.
        parent: [N], the previous row of the chain.
        gamma: the discount, a factor per row.
        lam: lambda of GAE, a factor per row.
    """
    return scan(reward + gamma * after - value, gamma * lam, parent)


def revisits(state: np.ndarray, next_state: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """[N] bool, did the step lead to a state that its path had visited before?

    The state in which the step began counts as visited. Unknown states are never equal.

    Args:
        state, next_state: [N] ids of the states before and after each step; -1 for an unknown state.
        parent: [N] the step before, -1 at a root.
    """
    been: list[frozenset[int]] = []  # for each row, the states on its path
    found = np.zeros(len(state), bool)  # [N]
    rows = zip(parent.tolist(), state.tolist(), next_state.tolist(), strict=True)
    for row, (above, here, there) in enumerate(rows):
        been.append((been[above] if above >= 0 else frozenset()) | {here})
        found[row] = there >= 0 and there in been[row]
    return found


def context_key(state: np.ndarray, parent: np.ndarray, k: int) -> np.ndarray:
    """[N] dense id of each row's last k states, the row's own state included.

    A path with fewer than k states never gets the id of a path with k states or more.

    Source: HGPO (arXiv 2602.22817), the context of length k.
    """
    key = keys(state)  # [N]
    above = parent
    for _ in range(k - 1):
        earlier = np.where(above >= 0, state[np.maximum(above, 0)], -1)  # [N]
        key = keys(key, earlier)
        above = np.where(above >= 0, parent[np.maximum(above, 0)], -1)
    return key


def broadcast(x: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Each row's value for each of its tokens: [S] from x [N] and token offsets [N+1]."""
    return np.repeat(x, np.diff(offsets))


def whiten(
    x: np.ndarray,
    weight: np.ndarray | None = None,
    eps: float = 1e-8,
    std: Std = "sample",
    key: np.ndarray | None = None,
) -> np.ndarray:
    """[N] (x - mean) / sqrt(variance + eps) over all rows. A single row gives 0: its sample variance is undefined.

    A row of weight 0 is left out of the statistics and still whitened by them. With `key` [N] int64, the rows of each
    key are whitened with their own mean and variance. For example, the agent can be the key, because scores of
    different agents have different meanings.
    """
    x = np.asarray(x, np.float64)
    if len(x) == 0:
        return x
    m = moments(x, np.zeros(len(x), np.int64) if key is None else keys(key), weight, std)
    return np.where(m.n <= 1, 0.0, centred(x, m) / np.sqrt(m.std**2 + eps))
