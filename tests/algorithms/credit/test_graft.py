"""GRAFT."""

import numpy as np
import pytest

from agentrl.graph import graph_values
from tests.algorithms.credit.steps import by, chain, credit_of, forest, scores


def test_by_hand():
    # s -> won (1) and s -> lost (0), gamma 0.5: V(s) = 0.5 * (1 + 0)/2 = 0.25. Differences: 0.5 - 0.25, 0 -
    # 0.25. Population std 0.25, so A = +-1.
    rows = chain("g", "a", [1], state=["s"], terminated=[True]) + chain("g", "b", [0], state=["s"], terminated=[True])
    out = credit_of("graft", rows, gamma=0.5, eps=0)
    assert out["value"] == [0.25, 0.25]
    np.testing.assert_allclose(out["advantage"], [1, -1])


def test_a_step_alone_at_its_node_gets_its_sign():
    # s -> t -> won: V(t) = 0.5, V(s) = 0.25: all differences are 0 on a lone chain; beside a failure from s
    # they are not
    rows = chain("g", "a", [0, 1], state=["s", "t"], terminated=[None, True])
    assert credit_of("graft", rows, gamma=0.5)["advantage"] == [0, 0]
    rows = [
        *chain("g", "a", [0, 1], state=["s", "t"], terminated=[None, True]),
        *chain("g", "b", [0, 0], state=["v", "t"], terminated=[None, True]),
    ]
    # V(t) = 0.25, so t's steps differ by 0.5 - 0.25 and 0 - 0.25; s and v see V(s) = 0.125 = 0.5 * V(t): 0
    a = credit_of("graft", rows, gamma=0.5, eps=0)["advantage"]
    np.testing.assert_allclose(a, [0, 1, 0, -1], atol=1e-7)


@pytest.mark.parametrize("seed", range(6))
def test_values_solve_the_bellman_equations(seed):
    rows = forest(seed)
    ends = {row["episode"]: i for i, row in enumerate(rows)}
    for i, row in enumerate(rows):
        row |= {"terminated": i in ends.values(), "truncated": False}
    value, score = credit_of("graft", rows, gamma=0.9)["value"], scores(rows)
    at = {(row["group"], row["state"]): v for row, v in zip(rows, value, strict=True)}
    for (group, state), indices in by(rows, "group", "state").items():
        after = [score[i] if i in ends.values() else at[group, rows[i + 1]["state"]] for i in indices]
        assert at[group, state] == pytest.approx(0.9 * sum(after) / len(after), abs=1e-6)


@pytest.mark.parametrize("lam", [0.0, 0.6, 0.95])
@pytest.mark.parametrize("seed", range(4))
def test_equals_two_linear_systems_whatever_the_lambda_of_graph_gae(seed, lam):
    rows = forest(seed)
    ends = {row["episode"]: i for i, row in enumerate(rows)}
    for i, row in enumerate(rows):
        row |= {"terminated": i in ends.values(), "truncated": False}
    n, score, gamma = len(rows), scores(rows), 0.9
    here = [(row["group"], row["state"]) for row in rows]
    after = [[] if i in ends.values() else [j for j in range(n) if here[j] == here[i + 1]] for i in range(n)]

    # one unknown a step: value of its own state, then its advantage; `out` averages over the steps after each
    def out(indices):
        return np.array([np.mean(np.eye(n)[own], axis=0) if own else np.zeros(n) for own in indices])

    siblings = [[j for j in range(n) if here[j] == here[i]] for i in range(n)]
    end = np.array([0.0 if after[i] else score[i] for i in range(n)])
    value = np.linalg.solve(np.eye(n) - gamma * out(siblings) @ out(after), gamma * out(siblings) @ end)
    delta = gamma * (out(after) @ value + end) - value
    a = np.linalg.solve(np.eye(n) - gamma * lam * out(after), delta)
    a[np.abs(a) < 1e-8] = 0.0
    expected = np.sign(a)
    for members in by(rows, "group", "state").values():
        if len(members) > 1:
            expected[members] = (a[members] - a[members].mean()) / (a[members].std() + 1e-6)
    found = credit_of("graft", rows, gamma=gamma)
    np.testing.assert_allclose(found["value"], value, atol=1e-6)
    np.testing.assert_allclose(found["advantage"], expected, atol=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_bellman_sweeps_equal_the_linear_system(seed):
    rng = np.random.default_rng(seed)
    u, v = rng.integers(8, size=(2, 30))
    fixed = np.full(10, np.nan)
    fixed[8:] = [1.0, 0.0]
    v[:4] = [8, 9, 8, 9]
    out = graph_values(u, v, fixed, how="bellman", gamma=0.9, tolerance=1e-12)
    system, known = np.eye(10), np.zeros(10)
    known[8:] = fixed[8:]
    for node in range(8):
        for edge in np.flatnonzero(u == node):
            system[node, v[edge]] -= 0.9 / (u == node).sum()
    np.testing.assert_allclose(out, np.linalg.solve(system, known), atol=1e-9)
