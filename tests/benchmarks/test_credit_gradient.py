"""The exact policy gradient that credit methods are measured against, and unbiased methods measured by it."""

import dataclasses

import numpy as np
import pytest

from agentrl import catalogue
from benchmarks import credit_gradient as bench

MDPS = bench.mdps()


@pytest.mark.parametrize("mdp", MDPS, ids=lambda m: m.name)
def test_exact_gradient_equals_finite_differences(mdp):
    truth, h = bench.exact(mdp).gradient, 1e-5
    for s, a in np.ndindex(*mdp.logits.shape):
        ends = []
        for sign in (1, -1):
            moved = mdp.logits.copy()
            moved[s, a] += sign * h
            value = bench.exact(dataclasses.replace(mdp, logits=moved)).value[0]
            ends.append(value[mdp.starts].mean())
        assert truth[s, a] == pytest.approx((ends[0] - ends[1]) / (2 * h), abs=1e-8)


@pytest.mark.parametrize("mdp", MDPS, ids=lambda m: m.name)
def test_played_returns_have_the_exact_value(mdp):
    truth = bench.exact(mdp)
    graph = bench.chains(mdp, 4000, truth, np.random.default_rng(0))
    returns = graph.score[graph.first]
    expected = truth.value[0][mdp.starts].mean()
    assert returns.mean() == pytest.approx(expected, abs=4 * returns.std() / np.sqrt(len(returns) / bench.GROUP))


@pytest.mark.parametrize("name", ["return to go (reference)", "rloo", "vine_ppo 9 continuations"])
def test_unbiased_methods_measure_as_unbiased(name):
    mdp = MDPS[0]
    truth = bench.exact(mdp)
    graph = bench.chains(mdp, 3000, truth, np.random.default_rng(1))
    out = bench.compare(bench.estimates(mdp, graph, bench.METHODS[name][1](graph)), truth.gradient.ravel())
    assert not out["biased"]
    assert abs(out["ratio"] - 1) < 1.5 * out["ratio_half_width"]


@pytest.mark.parametrize("apart", [0.3, 1.0])
def test_stored_values_leave_the_gradient_unbiased(apart):
    # a leave-one-out baseline with rollouts of an older policy in it; GRPO's scale is (n - 1) / n with all n = 16
    mdp = MDPS[0]
    truth = bench.exact(mdp)
    graph = bench.replayed(mdp, 3000, truth, np.random.default_rng(1), apart)
    assert (~graph.column("in_gradient")).any()
    for name, scale in (("rloo", 1.0), ("grpo", 15 / 16)):
        advantage = bench.method(name, **({"std": "none"} if name == "grpo" else {}))(graph)
        assert not advantage[~graph.column("in_gradient")].any()
        out = bench.compare(bench.estimates(mdp, graph, advantage), truth.gradient.ravel())
        assert not out["biased"]
        assert abs(out["ratio"] - scale) < 1.5 * out["ratio_half_width"]


def test_every_method_is_measured_or_said_to_be_not_applicable():
    measured = {name.split()[0] for name in bench.METHODS}
    combinators = {n for n in catalogue.names("credit") if catalogue.load("credit", n).wraps}
    assert set(catalogue.names("credit")) <= measured | set(bench.NOT_APPLICABLE) | combinators


def test_trees_have_eight_leaves_a_group():
    mdp = MDPS[0]
    graph = bench.trees(mdp, 50, bench.exact(mdp), np.random.default_rng(2))
    leaves = np.setdiff1d(np.arange(len(graph)), graph.parent)
    assert np.bincount(graph.group[leaves]).tolist() == [8] * 50
    inner = graph.parent >= 0
    assert (graph.turn[inner] == graph.turn[graph.parent[inner]] + 1).all()
    assert (graph.tree[inner] == graph.tree[graph.parent[inner]]).all()
