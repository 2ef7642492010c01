"""The KL charge of update.kl_in=reward under methods that divide by the standard deviation of a group."""

import numpy as np
import pytest

from agentrl import catalogue
from agentrl.credit import CreditMethod, assign
from agentrl.graph import DEMO, expand, paths
from agentrl.trainer import Annotated, charge_kl
from agentrl.trainer.sections import UpdateConfig
from tests.algorithms.credit.steps import chain, forest, graph_of
from tests.graph.graphs import Row, build, trees
from tests.toys.entries import credit_method

METHODS = [name for name in catalogue.names("credit") if not catalogue.load("credit", name).wraps]
LONE = {"poad", "token_gae", "bilevel_gae", "m_grpo"}  # they need tokens, or draw rows
BATCH = {"hiper", "single_stream", "turn_ppo"}  # they whiten over the batch, or can


def charged_graph(rewards, nats, coef: float):
    """One step per episode, all of one group, with a KL charge."""
    rows = [row for i, reward in enumerate(rewards) for row in chain("g", f"e{i}", [reward])]
    return graph_of(rows).with_columns(kl_charge=coef * np.array(nats))


@pytest.mark.parametrize("coef", [1.0, 1e-4, 1e-9])
def test_a_constant_group_by_hand(coef):
    # four copies with reward 1, charged 0.3, 0.5, 0.1, 0.7 nats (mean 0.4) times the coefficient
    found = assign(credit_method("grpo"), charged_graph([1, 1, 1, 1], [0.3, 0.5, 0.1, 0.7], coef))
    np.testing.assert_allclose(found.advantage, coef * np.array([0.1, -0.1, 0.3, -0.3]), rtol=1e-9)
    np.testing.assert_allclose(found.positive - found.negative, found.advantage, rtol=1e-9)
    assert found.metrics["zero_variance_groups"] == 1.0  # what the task says of the group stays
    np.testing.assert_array_equal(found.parts["base_advantage"], 0.0)


def test_a_varied_group_by_hand():
    # rewards 0, 2: mean 1, sample std sqrt(2), so -0.7071 and 0.7071; charges 0.2, 0.6 with mean 0.4
    found = assign(credit_method("grpo", eps=0), charged_graph([0, 2], [0.2, 0.6], 1.0))
    np.testing.assert_allclose(found.advantage, [-(0.5**0.5) + 0.2, 0.5**0.5 - 0.2])
    alone = assign(credit_method("grpo"), charged_graph([1], [0.3], 1.0))
    assert alone.advantage[0] == 0  # compared with nothing


@pytest.mark.parametrize("name", sorted(set(METHODS) - LONE - BATCH))
def test_a_method_says_whether_it_divides_by_the_spread(name):
    """Its credit is linear in the rewards exactly if `standardises` is False."""
    rows = forest(3)
    quiet = {"eps": 0.0} if "eps" in catalogue.load("credit", name).config.model_fields and name != "salt" else {}
    entry = credit_method(name, **quiet)
    columns = {"gold_logprob": np.full(len(rows), -1.0), "gold_logprob_start": np.full(len(rows), -1.0)}
    plain = graph_of([row | {"valid": True, "value": 0.0, "value_high": 0.0} for row in rows])
    plain = plain.with_columns(**{n: c for n, c in columns.items() if plain.has(n)})
    doubled = plain.with_columns(reward=2 * plain.reward)
    a, b = (assign(entry, graph).advantage for graph in (plain, doubled))
    linear = np.allclose(b, 2 * a, atol=1e-6)
    assert np.abs(a).max() > 1e-6 and linear is not entry.hooks.standardises(entry.config)


@pytest.mark.parametrize(
    "name", ["grpo", "gigpo", "hgpo", "role_grpo", "tl_grpo", "tree_grpo", "turn_returns", "graft"]
)
@pytest.mark.parametrize("make", ["chains", "trees"])
def test_the_charge_scales_with_its_coefficient(name, make):
    """On chains, and on trees, where a step has the mean over its paths; the rest of the credit is the method's."""
    if make == "chains":
        graph = graph_of([row | {"reward": 0.0} for row in forest(1)])
    else:
        graph = trees(3)
        graph = graph.with_columns(group=np.zeros(len(graph), np.int64), terminated=graph.last)
    entry = credit_method(name)
    nats = np.abs(np.random.default_rng(0).normal(size=len(graph)))
    base = assign(entry, graph)
    found = {c: assign(entry, graph.with_columns(kl_charge=c * nats)) for c in (1e-3, 1.0)}
    change = {c: one.advantage - base.advantage for c, one in found.items()}
    np.testing.assert_allclose(change[1e-3], 1e-3 * change[1.0], atol=1e-12)
    assert np.abs(change[1.0]).max() > 1e-2


def test_a_branched_step_has_the_sum_over_its_paths():
    graph = trees(3)
    graph = graph.with_columns(group=np.zeros(len(graph), np.int64), terminated=graph.last)
    nats = np.abs(np.random.default_rng(0).normal(size=len(graph)))
    graph = graph.with_columns(kl_charge=nats)
    on = paths(graph)
    whole = expand(graph, on)
    wide = assign(credit_method("grpo"), whole)
    pooled = assign(credit_method("grpo"), graph)
    total = np.bincount(on.row, wide.positive - wide.negative, len(graph))
    np.testing.assert_allclose(pooled.positive - pooled.negative, total, atol=1e-12)


def test_demonstrations_are_neither_charged_nor_compared():
    graph = charged_graph([1, 1, 1], [0.2, 0.6, 0.0], 1.0).with_columns(kind=np.array([0, 0, DEMO], np.int8))
    found = assign(credit_method("grpo"), graph)
    np.testing.assert_allclose(found.parts["kl_advantage"], [0.2, -0.2, 0.0])


def test_nested_methods_say_it_too():
    load = catalogue.load
    for name, options, expected in (
        ("clip", {"base": "grpo"}, True),
        ("clip", {"base": "rloo"}, False),
        ("whiten", {"base": "grpo", "options": {"std": "none"}}, False),
        ("sum", {"methods": ("rloo", "gigpo")}, True),
        ("sum", {"methods": ("rloo",)}, False),
        ("salt", {"base": "rloo"}, False),
        ("grpo", {"std": "none"}, False),
    ):
        method = load(CreditMethod, name)
        assert method.standardises(method.config(**options)) is expected, (name, options)


@pytest.mark.parametrize("after", [False, True])
def test_where_training_puts_the_charge(after):
    graph = build([Row([1], [2], columns={"terminated": True}), Row([1], [3], episode=1)])
    graph = graph.with_token_columns(old_logprob=np.full(4, -1.0), ref_logprob=np.full(4, -1.5))
    config = UpdateConfig(kl_coef=0.1, kl_in="reward", kl_form="k1")
    found, metrics = charge_kl(Annotated(graph, {}), config, after=after)
    np.testing.assert_allclose(found.column("kl"), 0.5)
    np.testing.assert_allclose(found.reward, 0.0 if after else -0.05)
    assert metrics["kl_ref"] == pytest.approx(0.5) and metrics["kl_charge"] == pytest.approx(0.05)
    assert found.has("kl_charge") is after
