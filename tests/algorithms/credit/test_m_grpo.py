"""M-GRPO: main agent and sub-agents."""

import numpy as np
import pytest

from agentrl.algorithms.credit.m_grpo import aligned
from tests.algorithms.credit.steps import advantage, assigned, chain, credit_of, graph_of


def hierarchy(calls, seed=0):
    """Rollouts of a main agent that calls a sub-agent calls[k] times."""
    rng, rows = np.random.default_rng(seed), []
    for k, n in enumerate(calls):
        rows += chain("q", f"m{k}", [float(rng.integers(2))], agent=["main"])
        for j in range(n):
            sub = chain("q", f"m{k}.{j}", [round(float(rng.random()), 2)], agent=["sub"])
            rows += [row | {"caller": [f"m{k}", 0]} for row in sub]
    return rows


def test_by_hand():
    # main rewards 1, 0: population std 0.5: +-1. Subs of the query in one group: 0.2, 0.6, 0.4: mean 0.4,
    # population std sqrt((0.04 + 0.04 + 0)/3) = 0.163299
    rows = [
        *chain("q", "m0", [1], agent=["main"]),
        *chain("q", "m1", [0], agent=["main"]),
        *chain("q", "s0", [0.2], agent=["sub"], caller=[["m0", 0]]),
        *chain("q", "s1", [0.6], agent=["sub"], caller=[["m0", 0]]),
        *chain("q", "s2", [0.4], agent=["sub"], caller=[["m1", 0]]),
    ]
    out = advantage("m_grpo", rows, align="off", eps=0)
    np.testing.assert_allclose(out, [1, -1, -0.2 / 0.16329932, 0.2 / 0.16329932, 0], atol=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_alignment_keeps_exactly_d_a_rollout(seed):
    rows = hierarchy([3, 8, 11, 0])
    out = credit_of("m_grpo", rows, align=8, seed=seed)
    for k, n in enumerate([3, 8, 11, 0]):
        kept = [x for x, row in zip(out["kept"], rows, strict=True) if row["episode"].startswith(f"m{k}.")]
        assert sum(kept) == (8 if n else 0)
        if n == 3:
            assert min(kept) >= 1
        if n == 11:
            assert sorted(kept) == [0] * 3 + [1] * 8
    assert all(x == 1 for x, row in zip(out["kept"], rows, strict=True) if row["agent"] == "main")


def test_duplicates_count_and_dropped_ones_get_nothing():
    rows = hierarchy([2, 5])
    out = credit_of("m_grpo", rows, align=4, seed=3)
    reward = np.array([row["reward"] for row in rows])
    kept = np.array(out["kept"])
    sub = np.array([row["agent"] == "sub" for row in rows])
    copies = np.repeat(reward[sub], kept[sub])
    for i in np.flatnonzero(sub):
        if kept[i] == 0:
            assert out["advantage"][i] is None
        else:
            assert out["advantage"][i] == pytest.approx((reward[i] - copies.mean()) / (copies.std() + 1e-6))
    credit = assigned("m_grpo", rows, align=4, seed=3)
    assert credit.weight.sum() == 2 + 8
    np.testing.assert_allclose(credit.positive - credit.negative, credit.advantage * credit.weight)


def test_the_draw_is_seeded():
    rows = hierarchy([3, 12])
    draws = [tuple(credit_of("m_grpo", rows, seed=seed)["kept"]) for seed in (0, 0, 1, 2, 3)]
    assert draws[0] == draws[1]
    assert len(set(draws)) > 1


def test_each_version_of_the_policy_draws_anew():
    # a run raises the version every iteration: the same calls must not be dropped for ever
    graph = graph_of(hierarchy([3, 12, 9, 1]))
    draws = [
        tuple(aligned(graph.with_columns(version_newest=np.full(len(graph), version)), 4, 0))
        for version in (0, 1, 1, 2, 3)
    ]
    assert draws[1] == draws[2] and len(set(draws)) == 4
    dropped = [frozenset(np.flatnonzero(np.array(draw) == 0)) for draw in draws]
    assert frozenset.intersection(*dropped) < dropped[0]


def test_align_below_one_is_refused():
    with pytest.raises(ValueError, match="align=0"):
        credit_of("m_grpo", hierarchy([1]), align=0)
