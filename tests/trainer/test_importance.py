"""Importance weights: by hand, against a slow loop, and in the gradient of an update."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from agentrl.credit import Credit
from agentrl.graph import decisions, token_rows
from agentrl.trainer import annotate, update
from agentrl.trainer.importance import importance_weights
from agentrl.trainer.sections import UpdateConfig
from tests.graph.graphs import chains, gradient, plain_tokens, tiny_model
from tests.toys.entries import loss
from tests.trainer.test_pack_gradient import frozen_learner

KINDS = ("none", "truncate", "mask", "sequence_mask")
# Ratios 0.25, 1 and 4 in sequence 0, whose geometric mean is (0.25 * 1 * 4) ** (1/3) = 1; 4 and 4 in sequence 1: 4.
RATIOS, SEQUENCE = np.array([0.25, 1.0, 4.0, 4.0, 4.0]), np.array([0, 0, 0, 1, 1])
BY_HAND = {
    "none": ([1, 1, 1, 1, 1], {}),
    "truncate": ([0.25, 1, 2, 2, 2], {"importance_mean": 1.45, "importance_truncated": 0.6}),
    "mask": ([0, 1, 0, 0, 0], {"importance_mean": 0.2, "importance_masked": 0.8}),
    "sequence_mask": ([1, 1, 1, 0, 0], {"importance_mean": 0.6, "importance_masked": 0.4}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_weights_by_hand(kind):
    low, high = (None, None) if kind == "none" else (None if kind == "truncate" else 0.5, 2.0)
    weight, metrics = importance_weights(np.log(RATIOS), SEQUENCE, kind, low, high)
    expected, told = BY_HAND[kind]
    np.testing.assert_allclose(weight, expected)
    assert metrics == pytest.approx(told)


def test_icepops_band_is_the_default_of_the_mask_and_the_cap_of_2_that_of_truncation():
    ratios = np.log([0.49, 0.51, 4.9, 5.1])
    np.testing.assert_allclose(importance_weights(ratios, np.arange(4), "mask").weight, [0, 0.51, 4.9, 0])
    np.testing.assert_allclose(importance_weights(ratios, np.arange(4), "truncate").weight, [0.49, 0.51, 2, 2])


def slow_weights(log_ratio, sequence, kind, low, high):
    """Token by token, as the sources write it."""
    found = []
    for k, r in enumerate(np.exp(log_ratio)):
        if kind == "truncate":
            found.append(min(r, high))
        elif kind == "mask":
            found.append(r if low <= r <= high else 0.0)
        else:
            product, size = 1.0, 0
            for other, of in zip(np.exp(log_ratio), sequence, strict=True):
                if of == sequence[k]:
                    product, size = product * other, size + 1
            found.append(1.0 if low <= product ** (1 / size) <= high else 0.0)
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS[1:])
def test_the_weights_are_those_of_a_slow_loop(kind, seed):
    rng = np.random.default_rng(seed)
    log_ratio, sequence = rng.normal(0, 0.7, 40), rng.integers(0, 9, 40) * 5
    weight, metrics = importance_weights(log_ratio, sequence, kind, None if kind == "truncate" else 0.7, 1.4)
    np.testing.assert_allclose(weight, slow_weights(log_ratio, sequence, kind, 0.7, 1.4))
    assert 0 < metrics.get("importance_masked", metrics.get("importance_truncated")) < 1


def test_ratios_beyond_floating_point_are_bounded():
    far = np.array([2000.0, -2000.0])
    assert importance_weights(far, np.arange(2), "truncate").weight.tolist() == [2.0, 0.0]
    for kind in ("mask", "sequence_mask"):
        assert importance_weights(far, np.arange(2), kind).weight.tolist() == [0.0, 0.0]
    assert importance_weights(np.zeros(0), np.zeros(0), "mask").metrics == {}


@pytest.mark.parametrize("sequence", ["step", "episode"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_a_slow_loop_over_tokens(kind, sequence):
    # REINFORCE on stale rollouts: sum over decisions of share * w(pi_old / pi_behaviour) * -A * grad log pi.
    low, high = (0.7, 1.4) if "mask" in kind else (None, None)
    config = UpdateConfig(
        importance=kind, importance_low=low, importance_high=high, sequence=sequence, aggregation="token-mean"
    )
    graph = chains(4)
    rng = np.random.default_rng(1)
    behaviour = np.zeros(len(graph.tokens.ids))
    for row in range(len(graph)):
        for s, logprob, _ in plain_tokens(tiny_model(), graph, row):
            behaviour[s] = logprob.item() + rng.normal(0, 1.2)
    graph = replace(graph, tokens=replace(graph.tokens, logprobs=behaviour))
    advantage = rng.normal(size=len(graph))
    learner = frozen_learner(tiny_model())
    annotated = annotate(graph, learner, config, 1.0).graph
    update(learner, annotated, Credit.of(advantage), config, loss("reinforce"), temperature=1.0)

    model = tiny_model()
    counted = decisions(graph.tokens)
    key = (graph.episode if sequence == "episode" else np.arange(len(graph)))[token_rows(graph.tokens)][counted]
    old = {s: p.item() for row in range(len(graph)) for s, p, _ in plain_tokens(model, graph, row)}
    log_ratio = np.array([old[s] - behaviour[s] for s in np.flatnonzero(counted)])
    slow = [1.0] * len(log_ratio) if kind == "none" else slow_weights(log_ratio, key, kind, low, high or 2.0)
    weight = dict(zip(np.flatnonzero(counted).tolist(), slow, strict=True))
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(graph)):
        for s, logprob, _ in plain_tokens(model, graph, row):
            total = total - weight[s] * advantage[row] * logprob / len(weight)
    total.backward()
    np.testing.assert_allclose(gradient(learner.model), gradient(model), atol=1e-6)
    assert kind == "none" or len(set(slow)) > 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"importance": "truncate", "importance_low": 0.5}, "importance_low needs importance=mask"),
        ({"importance": "none", "importance_high": 2.0}, "importance_high has no effect"),
        ({"importance": "mask", "importance_low": 3.0, "importance_high": 2.0}, "above importance_high = 2"),
        ({"importance": "mask", "old_logprob": "engine"}, "set old_logprob='trainer'"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        UpdateConfig(**options)


def test_the_gate_by_hand_with_a_mask():
    # Trainer e^-1 where the engine said e^-3: e^2 is above IcePop's 5, and the token is masked.
    graph = chains(2)
    learner = frozen_learner(tiny_model())
    exact = annotate(graph, learner, UpdateConfig(), 1.0).graph.tokens.columns["old_logprob"]
    off = exact.copy()
    at = int(np.flatnonzero(decisions(graph.tokens))[0])
    off[at] -= 2.0
    stale = replace(graph, tokens=replace(graph.tokens, logprobs=off))
    annotated, metrics = annotate(stale, learner, UpdateConfig(importance="mask"), 1.0)
    importance = annotated.tokens.columns["importance"]
    assert importance[at] == 0.0 and math.isclose(np.delete(importance, at).min(), 1.0, abs_tol=1e-9)
    assert metrics["importance_masked"] == pytest.approx(1 / decisions(graph.tokens).sum())
