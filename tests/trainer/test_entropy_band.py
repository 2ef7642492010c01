"""Entropy band and likelihood guard inside the update: hand cases, micro-batches, resume, and steps without credit."""

import io

import numpy as np
import pytest
import torch

from agentrl.algorithms.regularizer.entropy_band import Config, EntropyBand, band_weight
from agentrl.credit import Credit
from agentrl.graph import path_lengths
from agentrl.settings import Settings
from agentrl.trainer import Learner, Regularizers, annotate, update
from agentrl.trainer.sections import OptimConfig, UpdateConfig
from tests.graph.graphs import Row, build, chains, gradient, loaded, plain_tokens, tiny_model, windows
from tests.toys.entries import loss, regularizer

LOSS = loss("ppo_clip")
BOTH = (
    regularizer("entropy_band", coef=0.05, low=0.95, high=1.05, mode="step", differentiable=True),
    regularizer("likelihood_guard", coef=0.3),
)


def still(updates: int = 4) -> Learner:
    """A learner that no step moves."""
    learner = Learner(loaded(tiny_model()), OptimConfig(lr=0.0, weight_decay=0.0))
    learner.restart(learner.optim, updates)
    return learner


def run(learner, graph, advantage, terms=None, config=None, seed=0):
    config = config or UpdateConfig()
    graph, _ = annotate(graph, learner, config, 1.0)
    credit = Credit.of(advantage)
    return update(learner, graph, credit, config, LOSS, temperature=1.0, seed=seed, regularizers=terms)


def test_history_by_hand():
    # turn 0: (1 + 3) / 2; turn 1: 2, seen once; turn 2: never
    past = EntropyBand(Config())
    assert np.isnan(past.at(np.array([0]))).all()
    past.add(np.array([1.0, np.nan]))
    past.add(np.array([3.0, 2.0, np.nan]))
    np.testing.assert_array_equal(past.at(np.array([0, 1, 2, 9])), [2, 2, np.nan, np.nan])
    again = EntropyBand(Config())
    again.load_state_dict(past.state_dict())
    again.add(np.array([5.0]))
    assert again.at(np.array([0]))[0] == 3 and past.at(np.array([0]))[0] == 2


def test_the_band_by_hand():
    """A = 1 at ratio 1 costs -1 a token. Update 0 has no history: only the bonus. In update 1 the history is the
    entropy itself, H a turn, and a band of [1.5, 2] H puts both tokens outside: -1 - c (H - 2 w 0.1)."""
    graph = build([Row([1], [2, 3])])
    entropy = np.mean([h.item() for _, _, h in plain_tokens(tiny_model(), graph, 0)])
    learner = still()
    terms = Regularizers([regularizer("entropy_band", coef=0.5, weight=2.0, low=1.5, high=2.0, mode="step")])
    config = UpdateConfig(importance="none")
    first = run(learner, graph, np.ones(1), terms, config)
    assert first["epo_band"] == 0 and first["loss"] == pytest.approx(-1 - 0.5 * entropy)
    second = run(learner, graph, np.ones(1), terms, config)
    assert second["epo_band"] == pytest.approx(0.1)
    assert second["loss"] == pytest.approx(-1 - 0.5 * (entropy - 2 * band_weight(1, 4) * 0.1))
    assert terms.instances[0].at(np.array([0]))[0] == pytest.approx(entropy)


def test_history_is_kept_by_turn_and_weighted_like_the_loss():
    # turn 0: rows 0 and 2, the latter counted three times; turn 1: row 1
    graph = build([Row([1], [2]), Row([4], [5], 0, None, 0, turn=1), Row([7], [8], episode=1)])
    graph = graph.with_columns(weight=np.array([1.0, 1.0, 3.0]))
    h = [plain_tokens(tiny_model(), graph, row)[0][2].item() for row in range(3)]
    terms = Regularizers([regularizer("entropy_band")])
    run(still(), graph, np.zeros(3), terms)
    np.testing.assert_allclose(terms.instances[0].at(np.array([0, 1])), [(h[0] + 3 * h[2]) / 4, h[1]])


def test_the_guard_by_hand():
    # Row 0 (A = 1): log-ratios -0.3 and +0.1, it fell in all: the first token pays 0.3. Row 1 (A = -1) may fall.
    # Token losses: -e^-0.3 + 0.5 * 0.3, -e^0.1, then max(u, 0.8) = 0.8 at u = e^-0.3.
    graph = build([Row([1], [2, 3]), Row([4], [5], episode=1)])
    learner = still()
    graph, _ = annotate(graph, learner, UpdateConfig(importance="none"), 1.0)
    graph = graph.with_token_columns(old_logprob=graph.tokens.columns["old_logprob"] + np.array([0, 0.3, -0.1, 0, 0.3]))
    credit = Credit.of(np.array([1.0, -1.0]))
    terms = Regularizers([regularizer("likelihood_guard", coef=0.5)])
    metrics = update(learner, graph, credit, UpdateConfig(), LOSS, temperature=1.0, regularizers=terms)
    assert metrics["llds"] == pytest.approx(0.1)
    assert metrics["loss"] == pytest.approx((-np.exp(-0.3) + 0.15 - np.exp(0.1) + 0.8) / 3)


def test_the_guard_does_not_guard_bad_actions_that_a_weight_masks():
    """An action of A = -1 whose tokens have weight 0 (importance=mask) fell: it pays nothing, as with weight 1."""
    graph = build([Row([1], [2, 3]), Row([4], [5], episode=1)])
    learner = still()
    graph, _ = annotate(graph, learner, UpdateConfig(importance="none"), 1.0)
    old = graph.tokens.columns["old_logprob"] + np.array([0, 0.3, 0.3, 0, 0.3])
    graph = graph.with_token_columns(old_logprob=old, importance=np.zeros(5))
    terms = Regularizers([regularizer("likelihood_guard", coef=0.5)])
    credit = Credit.of(np.array([-1.0, 1.0]))
    metrics = update(learner, graph, credit, UpdateConfig(), LOSS, temperature=1.0, regularizers=terms)
    assert metrics["llds"] == pytest.approx(0.1)  # the one token of the good action, over three tokens
    assert metrics["loss"] == pytest.approx(0.5 * 0.1)


@pytest.mark.parametrize("make", [chains, windows])
def test_micro_batches_equal_one(make):
    found = []
    for max_tokens in (int(path_lengths(make(5).tokens).max()), 100_000):
        learner = still()
        learner.step = lambda: (0.0, False)
        terms = Regularizers(BOTH)
        terms.instances[0].add(np.array([1.5, 2.0, 3.0]))  # turn 3 has no history
        graph, _ = annotate(make(5), learner, UpdateConfig(), 1.0)
        noise = np.random.default_rng(1).normal(0, 0.2, len(graph.tokens.ids))
        graph = graph.with_token_columns(old_logprob=graph.tokens.columns["old_logprob"] + noise)
        credit = Credit.of(np.random.default_rng(2).normal(size=len(graph)))
        config = UpdateConfig(max_tokens=max_tokens)
        metrics = update(learner, graph, credit, config, LOSS, temperature=1.0, regularizers=terms)
        found.append((metrics, gradient(learner.model), terms.instances[0].at(np.arange(4))))
    assert found[0][0]["microbatches"] > found[1][0]["microbatches"] == 1
    for name in ("loss", "epo_band", "llds"):
        assert found[0][0][name] == pytest.approx(found[1][0][name], abs=1e-7) != 0
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found[0][2], found[1][2], rtol=1e-7)


@pytest.mark.parametrize("name", ["entropy_band", "likelihood_guard"])
def test_steps_without_credit_are_trained_when_a_term_asks_for_them(name):
    advantage = np.zeros(len(chains(0)))
    assert run(still(), chains(0), advantage)["idle_rows"] == len(advantage)
    assert run(still(), chains(0), advantage, Regularizers([regularizer(name)]))["idle_rows"] == 0


def test_resume_is_exact():
    """Two updates, state through a file, two more: the weights of four in a row, bit for bit."""
    optim, config = OptimConfig(lr=0.01), UpdateConfig(minibatches=2, epochs=2)

    def go_on(learner, terms, seeds):
        for seed in seeds:
            advantage = np.random.default_rng(seed).normal(size=len(chains(seed)))
            run(learner, chains(seed), advantage, terms, config, seed)
        return torch.cat([p.detach().reshape(-1) for p in learner.model.parameters()])

    through, first = (Learner(loaded(tiny_model()), optim) for _ in range(2))
    through.restart(optim, 5)
    first.restart(optim, 5)
    kept, before = Regularizers(BOTH), Regularizers(BOTH)
    straight = go_on(through, kept, range(4))
    go_on(first, before, range(2))
    file = io.BytesIO()
    torch.save({"learner": first.state_dict(), "terms": before.state_dict()}, file)
    second, forgetful = (Learner(loaded(tiny_model()), optim) for _ in range(2))
    again = Regularizers(BOTH)
    for learner in (second, forgetful):
        learner.model.load_state_dict(first.model.state_dict())
        file.seek(0)
        stored = torch.load(file, weights_only=True)
        learner.load_state_dict(stored["learner"])
    again.load_state_dict(stored["terms"])
    assert torch.equal(straight, go_on(second, again, range(2, 4)))
    assert not torch.equal(straight, go_on(forgetful, Regularizers(BOTH), range(2, 4)))
    assert kept.state_dict() == again.state_dict() != {}


def test_a_stage_begins_without_history():
    terms = Regularizers(BOTH)
    terms.instances[0].add(np.ones(2))
    terms.restart()
    assert terms.instances[0].total == []


BASE = {"env": {"name": "alfworld"}, "model": {"path": "m"}}


def test_a_recipe_names_its_regularizers():
    terms = [{"name": "entropy_band", "coef": 0.001}, {"name": "likelihood_guard"}]
    settings = Settings({**BASE, "update": {"regularizers": terms}})
    assert [entry.name for entry in settings.regularizers] == ["entropy_band", "likelihood_guard"]
    assert settings.dump()["update"]["regularizers"][0]["low"] == 0.8 and settings.notes == []
    wrong = {**BASE, "update": {"regularizers": [{"name": "entropy_band", "coeff": 0.001}]}}
    with pytest.raises(ValueError, match=r"unknown key update\.regularizers\.0\.coeff.*coef"):
        Settings(wrong)
