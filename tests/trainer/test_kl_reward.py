"""KL taken off the rewards: hand cases, what credit then sees, and that the loss has no KL term of its own."""

import importlib
import math

import numpy as np
import pytest

from agentrl.credit import Credit, assign
from agentrl.graph import PROBE, StepGraph, expand, paths
from agentrl.trainer import Annotated, Learner, annotate, charge_kl, update
from agentrl.trainer.sections import OptimConfig, UpdateConfig
from agentrl.types import Status
from tests.graph.graphs import Row, build, chains, loaded, plain_tokens, tiny_model, trees, windows
from tests.toys.entries import credit_method, loss

ppo_clip = importlib.import_module("agentrl.algorithms.loss.ppo_clip")
grpo = importlib.import_module("agentrl.algorithms.credit.grpo")
LN2 = math.log(2.0)


def in_reward(**options) -> UpdateConfig:
    return UpdateConfig(**{"kl_coef": 0.5, "kl_in": "reward", "kl_form": "k1", **options})


def random_pair(graph: StepGraph, seed: int) -> StepGraph:
    """Log-probs of a policy and a reference, and rewards."""
    rng = np.random.default_rng(seed)
    old, reference = -rng.random((2, len(graph.tokens.ids)))
    graph = graph.with_token_columns(old_logprob=old, ref_logprob=reference)
    return graph.with_columns(reward=rng.normal(size=len(graph)))


@pytest.mark.parametrize(
    ("form", "kl"),
    [
        ("k1", [LN2 - LN2, LN2]),
        ("abs", [2 * LN2, LN2]),
        ("k2", [LN2**2, LN2**2 / 2]),
        ("k3", [(LN2 - 0.5) + (1 - LN2), LN2 - 0.5]),
    ],
)
def test_every_estimator_by_hand(form, kl):
    # Row 0 samples two tokens, log(pi / ref) = ln 2 and -ln 2: k1 cancels; k3 = 1/2 + ln 2 - 1 and 2 - ln 2 - 1.
    # Row 1 samples one at ln 2, and one whose allowed set has a single member, which is no decision. Prompts are free.
    graph = build([Row([1, 2], [3, 4]), Row([5], [6, 7], episode=1, allowed=[[], [7]])])
    apart = np.array([9, 9, LN2, -LN2, 9, LN2, 9])
    graph = graph.with_token_columns(old_logprob=apart - 1, ref_logprob=np.full(7, -1.0))
    graph = graph.with_columns(reward=np.array([1.0, 0.0]))
    charged, metrics = charge_kl(Annotated(graph, {"mismatch_max": 0.0}), in_reward(kl_form=form))
    np.testing.assert_allclose(charged.columns["kl"], kl, atol=1e-12)
    np.testing.assert_allclose(charged.reward, [1 - kl[0] / 2, -kl[1] / 2], atol=1e-12)
    assert metrics["mismatch_max"] == 0 and metrics["kl_ref"] == pytest.approx(sum(kl) / 3)
    assert metrics["kl_charge"] == pytest.approx(sum(kl) / 4)


@pytest.mark.parametrize("config", [UpdateConfig(kl_coef=0.5), UpdateConfig(kl_in="reward")])
def test_nothing_happens_unless_asked(config):
    annotated = Annotated(chains(0), {})
    assert charge_kl(annotated, config) is annotated


def test_steps_that_cannot_be_trained_are_not_charged():
    # Row 1 is a probe, row 2 ended in an environment error.
    rows = [Row([1], [2], episode=e) for e in range(3)]
    rows[1].columns["kind"] = PROBE
    rows[2].columns["ending"] = Status.ENV_ERROR
    charged, metrics = charge_kl(Annotated(random_pair(build(rows), 0), {}), in_reward())
    assert charged.columns["kl"][0] != 0 and (charged.columns["kl"][1:] == 0).all()
    assert metrics["kl_ref"] == charged.columns["kl"][0]


@pytest.mark.parametrize("make", [chains, trees, windows])
def test_a_given_score_loses_what_its_whole_path_costs(make):
    """A score that is the sum of a path's rewards stays it."""
    for seed in range(10):
        graph = random_pair(make(seed), seed)
        on = paths(graph)
        summed = expand(graph, on).score  # a path's score, from its rewards
        total = np.zeros(len(graph))
        for row in range(len(graph)):
            above = row
            while above >= 0:
                total[row] += graph.reward[above]
                above = graph.parent[above]
        last = {e: np.flatnonzero((graph.episode == e) & graph.last)[0] for e in np.unique(graph.episode)}
        scored = graph.with_columns(score=np.array([total[last[e]] for e in graph.episode]))
        np.testing.assert_allclose(expand(scored, on).score, summed)
        plain, _ = charge_kl(Annotated(graph, {}), in_reward())
        given, _ = charge_kl(Annotated(scored, {}), in_reward())
        np.testing.assert_allclose(expand(given, on).score, expand(plain, on).score)
        assert not np.allclose(expand(plain, on).score, summed)
        for charged in (plain, given):  # and who succeeded is what it was
            np.testing.assert_array_equal(expand(charged, on).succeeded, summed > 0)


def test_the_charge_is_the_models_own_and_credit_sees_it():
    """After an update policy and reference differ; the charge is a plain loop over both models' log-probs."""
    learner = Learner(loaded(tiny_model()), OptimConfig(lr=0.02), reference=True)
    config = in_reward(kl_coef=0.1)
    first = chains(1).with_columns(group=np.zeros(len(chains(1)), np.int64))
    for graph in (first, first):
        annotated = annotate(graph, learner, config, 1.0)
        charged, metrics = charge_kl(annotated, config)
        credit = assign(credit_method("grpo", std="none"), charged)
        kl = np.zeros(len(graph))
        for row in range(len(graph)):
            new, old = (plain_tokens(model, graph, row) for model in (learner.model, tiny_model()))
            kl[row] = sum(a[1].item() - b[1].item() for a, b in zip(new, old, strict=True))
        np.testing.assert_allclose(charged.columns["kl"], kl, atol=1e-5)
        by_hand = assign(credit_method("grpo", std="none"), graph.with_columns(reward=-0.1 * kl))
        np.testing.assert_allclose(credit.advantage, by_hand.advantage, atol=1e-6)
        advantage = np.random.default_rng(0).normal(size=len(graph))
        update(learner, charged, Credit.of(advantage), config, loss("ppo_clip"), temperature=1.0)
    assert abs(metrics["kl_ref"]) > 1e-3


def test_a_failure_cheaper_than_the_reference_is_no_success():
    # k1 = -ln 2 on the only token: reward 0 becomes +0.35, and yet the episode failed.
    graph = build([Row([1], [2], columns={"terminated": True})])
    graph = graph.with_token_columns(old_logprob=np.array([0.0, -LN2]), ref_logprob=np.zeros(2))
    charged, _ = charge_kl(Annotated(graph, {}), in_reward())
    assert charged.score[0] == pytest.approx(LN2 / 2) and not charged.succeeded[0]
    assert charged.with_columns(env_score=np.ones(1)).succeeded[0]


def test_the_loss_has_no_kl_term_then():
    graph = random_pair(chains(2), 2)
    losses = {}
    for name, config in {"off": UpdateConfig(), "loss": UpdateConfig(kl_coef=0.5), "reward": in_reward()}.items():
        learner = Learner(loaded(tiny_model()), OptimConfig(), reference=True)
        credit = Credit.of(np.arange(len(graph)) % 2.0)
        losses[name] = update(learner, graph, credit, config, loss("ppo_clip"), temperature=1.0)
    assert losses["reward"] == losses["off"] and losses["loss"]["loss"] != losses["off"]["loss"]
    assert "kl_ref" not in losses["reward"] and losses["reward"]["idle_rows"] > 0 == losses["loss"]["idle_rows"]
