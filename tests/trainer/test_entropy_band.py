"""EPO's band and LLDS's guard inside the update: hand cases, micro-batches, resume, and steps without credit."""

import importlib
import io

import numpy as np
import pytest
import torch

from agentrl.config import override, validate
from agentrl.credit import Credit
from agentrl.graph import path_lengths
from agentrl.settings.sections import Tables
from agentrl.trainer import Learner, annotate, update
from agentrl.trainer.entropy_band import PastEntropy
from agentrl.trainer.regularizers import band_weight
from agentrl.trainer.sections import EpoConfig, LldsConfig, OptimConfig, UpdateConfig
from tests.graph.graphs import Row, build, chains, gradient, loaded, plain_tokens, tiny_model, windows

ppo_clip = importlib.import_module("agentrl.algorithms.loss.ppo_clip")
LOSS = ppo_clip.Config()
BOTH = UpdateConfig(
    epo=EpoConfig(coef=0.05, low=0.95, high=1.05, mode="step", differentiable=True), llds=LldsConfig(coef=0.3)
)


def still(updates: int = 4) -> Learner:
    """A learner that no step moves."""
    learner = Learner(loaded(tiny_model()), OptimConfig(lr=0.0, weight_decay=0.0))
    learner.restart(learner.optim, updates)
    return learner


def run(learner, graph, advantage, config, seed=0):
    graph, _ = annotate(graph, learner, config, 1.0)
    return update(learner, graph, Credit.of(advantage), config, ppo_clip, LOSS, temperature=1.0, seed=seed)


def test_history_by_hand():
    # turn 0: (1 + 3) / 2; turn 1: 2, seen once; turn 2: never
    past = PastEntropy()
    assert np.isnan(past.at(np.array([0]))).all()
    past.add(np.array([1.0, np.nan]))
    past.add(np.array([3.0, 2.0, np.nan]))
    np.testing.assert_array_equal(past.at(np.array([0, 1, 2, 9])), [2, 2, np.nan, np.nan])
    again = PastEntropy()
    again.load_state_dict(past.state_dict())
    again.add(np.array([5.0]))
    assert again.at(np.array([0]))[0] == 3 and past.at(np.array([0]))[0] == 2


def test_the_band_by_hand():
    """A = 1 at ratio 1 costs -1 a token. Update 0 has no history: only the bonus. In update 1 the history is the
    entropy itself, H a turn, and a band of [1.5, 2] H puts both tokens outside: -1 - c (H - 2 w 0.1)."""
    graph = build([Row([1], [2, 3])])
    entropy = np.mean([h.item() for _, _, h in plain_tokens(tiny_model(), graph, 0)])
    learner = still()
    epo = EpoConfig(coef=0.5, weight=2.0, low=1.5, high=2.0, mode="step")
    config = UpdateConfig(epo=epo, importance_cap=0)
    first = run(learner, graph, np.ones(1), config)
    assert first["epo_band"] == 0 and first["loss"] == pytest.approx(-1 - 0.5 * entropy)
    second = run(learner, graph, np.ones(1), config)
    assert second["epo_band"] == pytest.approx(0.1)
    assert second["loss"] == pytest.approx(-1 - 0.5 * (entropy - 2 * band_weight(1, 4) * 0.1))
    assert learner.past_entropy.at(np.array([0]))[0] == pytest.approx(entropy)


def test_history_is_kept_by_turn_and_weighted_like_the_loss():
    # turn 0: rows 0 and 2, the latter counted three times; turn 1: row 1
    graph = build([Row([1], [2]), Row([4], [5], 0, None, 0, turn=1), Row([7], [8], episode=1)])
    graph = graph.with_columns(weight=np.array([1.0, 1.0, 3.0]))
    h = [plain_tokens(tiny_model(), graph, row)[0][2].item() for row in range(3)]
    learner = still()
    run(learner, graph, np.zeros(3), UpdateConfig(epo=EpoConfig(coef=0.001)))
    np.testing.assert_allclose(learner.past_entropy.at(np.array([0, 1])), [(h[0] + 3 * h[2]) / 4, h[1]])


def test_the_guard_by_hand():
    # Row 0 (A = 1): log-ratios -0.3 and +0.1, it fell in all: the first token pays 0.3. Row 1 (A = -1) may fall.
    # Token losses: -e^-0.3 + 0.5 * 0.3, -e^0.1, then max(u, 0.8) = 0.8 at u = e^-0.3.
    graph = build([Row([1], [2, 3]), Row([4], [5], episode=1)])
    learner = still()
    graph, _ = annotate(graph, learner, UpdateConfig(importance_cap=0), 1.0)
    graph = graph.with_token_columns(old_logprob=graph.tokens.columns["old_logprob"] + np.array([0, 0.3, -0.1, 0, 0.3]))
    credit = Credit.of(np.array([1.0, -1.0]))
    config = UpdateConfig(llds=LldsConfig(coef=0.5))
    metrics = update(learner, graph, credit, config, ppo_clip, LOSS, temperature=1.0)
    assert metrics["llds"] == pytest.approx(0.1)
    assert metrics["loss"] == pytest.approx((-np.exp(-0.3) + 0.15 - np.exp(0.1) + 0.8) / 3)


@pytest.mark.parametrize("make", [chains, windows])
def test_micro_batches_equal_one(make):
    found = []
    for max_tokens in (int(path_lengths(make(5).tokens).max()), 100_000):
        learner = still()
        learner.step = lambda: (0.0, False)
        learner.past_entropy.add(np.array([1.5, 2.0, 3.0]))  # turn 3 has no history
        graph, _ = annotate(make(5), learner, UpdateConfig(), 1.0)
        noise = np.random.default_rng(1).normal(0, 0.2, len(graph.tokens.ids))
        graph = graph.with_token_columns(old_logprob=graph.tokens.columns["old_logprob"] + noise)
        credit = Credit.of(np.random.default_rng(2).normal(size=len(graph)))
        config = BOTH.model_copy(update={"max_tokens": max_tokens})
        metrics = update(learner, graph, credit, config, ppo_clip, LOSS, temperature=1.0)
        found.append((metrics, gradient(learner.model), learner.past_entropy.at(np.arange(4))))
    assert found[0][0]["microbatches"] > found[1][0]["microbatches"] == 1
    for name in ("loss", "epo_band", "llds"):
        assert found[0][0][name] == pytest.approx(found[1][0][name], abs=1e-7) != 0
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found[0][2], found[1][2], rtol=1e-7)


@pytest.mark.parametrize("on", [{"epo": EpoConfig(coef=0.01)}, {"llds": LldsConfig(coef=0.1)}])
def test_steps_without_credit_are_trained_when_a_term_asks_for_them(on):
    advantage = np.zeros(len(chains(0)))
    assert run(still(), chains(0), advantage, UpdateConfig())["idle_rows"] == len(advantage)
    assert run(still(), chains(0), advantage, UpdateConfig(**on))["idle_rows"] == 0


def test_terms_that_are_off_change_no_weight():
    found = []
    for config in (UpdateConfig(), UpdateConfig(epo=EpoConfig(coef=0.0, low=0.5), llds=LldsConfig(coef=0.0))):
        learner = Learner(loaded(tiny_model()), OptimConfig(lr=0.01))
        run(learner, chains(3), np.random.default_rng(3).normal(size=len(chains(3))), config)
        assert learner.past_entropy.state_dict() == {"total": [], "updates": []}
        found.append(torch.cat([p.detach().reshape(-1) for p in learner.model.parameters()]))
    assert torch.equal(*found)


def test_resume_is_exact():
    """Two updates, state through a file, two more: the weights of four in a row, bit for bit."""
    optim, config = OptimConfig(lr=0.01), BOTH.model_copy(update={"minibatches": 2, "epochs": 2})

    def go_on(learner, seeds):
        for seed in seeds:
            advantage = np.random.default_rng(seed).normal(size=len(chains(seed)))
            run(learner, chains(seed), advantage, config, seed)
        return torch.cat([p.detach().reshape(-1) for p in learner.model.parameters()])

    through, first = (Learner(loaded(tiny_model()), optim) for _ in range(2))
    through.restart(optim, 5)
    first.restart(optim, 5)
    straight = go_on(through, range(4))
    go_on(first, range(2))
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    second, forgetful = (Learner(loaded(tiny_model()), optim) for _ in range(2))
    for learner in (second, forgetful):
        learner.model.load_state_dict(first.model.state_dict())
        file.seek(0)
        learner.load_state_dict(torch.load(file, weights_only=True))
    forgetful.past_entropy = PastEntropy()
    assert torch.equal(straight, go_on(second, range(2, 4)))
    assert not torch.equal(straight, go_on(forgetful, range(2, 4)))
    assert through.past_entropy.state_dict() == second.past_entropy.state_dict()


def test_a_stage_begins_without_history_and_older_checkpoints_load():
    learner = still()
    learner.past_entropy.add(np.ones(2))
    state = learner.state_dict()
    del state["past_entropy"]
    learner.load_state_dict(state)
    assert learner.past_entropy.total == []
    learner.past_entropy.add(np.ones(2))
    learner.restart(learner.optim, 1)
    assert learner.past_entropy.total == []


def test_overrides_reach_the_sections():
    base = {"env": {"name": "alfworld"}, "model": {"path": "m"}}
    tables = validate(Tables, override(base, ["update.epo.coef=0.001", "update.llds.coef=0.1"]))
    assert tables.update.epo == EpoConfig(coef=0.001) and tables.update.llds.coef == 0.1
    with pytest.raises(ValueError, match=r"unknown key update\.epo\.coeff.*coef"):
        validate(Tables, override(base, ["update.epo.coeff=0.001"]))
