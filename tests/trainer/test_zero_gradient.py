"""A step whose exact gradient is 0 moves no weight, although two forward passes differ by rounding."""

import numpy as np
import pytest
import torch

from agentrl.credit import Credit
from agentrl.graph import StepGraph
from agentrl.loss import ROUNDING, unrounded
from agentrl.trainer import Learner, Regularizers, annotate, update
from agentrl.trainer.sections import OptimConfig, UpdateConfig
from tests.graph.graphs import chains, loaded, tiny_model, trees
from tests.toys.entries import loss, regularizer
from tests.trainer.test_dropout import adapted

OPTIMS = {
    "adamw": OptimConfig(lr=0.01, weight_decay=0.1),
    "muon": OptimConfig(name="muon", lr=0.01, muon_lr=0.05),
}


def weights(learner: Learner) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1).clone() for p in learner.model.parameters()])


def made(optim: str = "adamw", model: torch.nn.Module | None = None) -> Learner:
    """A learner in float32 that has made a step before, so that its optimiser has momentum."""
    learner = Learner(loaded((model or tiny_model()).float()), OPTIMS[optim], reference=True)
    graph, _ = annotate(chains(9), learner, UpdateConfig(), 1.0)
    update(learner, graph, Credit.of(np.ones(len(graph))), UpdateConfig(), loss("ppo_clip"), temperature=1.0)
    learner.reference_copy = learner._renewed_reference() if learner.reference_copy else None
    if learner.reference_adapter:
        named = dict(learner.network.model.named_parameters())
        learner.reference_adapter = {name: named[name].detach().clone() for name in learner.reference_adapter}
    return learner


def uncredited(learner: Learner, graph: StepGraph, config: UpdateConfig, name: str, *added: str) -> dict[str, float]:
    """The metrics of an update in which every advantage is 0."""
    graph, _ = annotate(graph, learner, config, 1.0)
    credit = Credit.of(np.zeros(len(graph)))
    if "teacher" in added:
        graph = graph.with_token_columns(teacher_logprob=graph.token_column("ref_logprob"))
    own = Regularizers([regularizer(one) for one in added])
    return update(learner, graph, credit, config, loss(name), temperature=1.0, regularizers=own)


@pytest.mark.parametrize("optim", OPTIMS)
@pytest.mark.parametrize("form", ["abs", "k2", "k3"])
@pytest.mark.parametrize("old", ["trainer", "engine"])
def test_a_policy_that_is_its_reference_stays(optim, form, old):
    """d k3 / d log pi = 1 - exp(log ref - log pi) = 0, and so for the other forms."""
    config = UpdateConfig(kl_coef=0.1, kl_form=form, epochs=2, minibatches=2, old_logprob=old, max_tokens=60)
    learner = made(optim)
    before = weights(learner)
    metrics = uncredited(learner, trees(4), config, "ppo_clip")
    assert torch.equal(before, weights(learner))
    assert metrics["grad_norm"] == 0 and metrics["skipped_steps"] == 0 and metrics["entropy"] > 0


def test_so_does_an_adapter_and_a_model_in_half_precision():
    config = UpdateConfig(kl_coef=0.1, epochs=2, minibatches=2)
    learner = made(model=adapted(0.0))
    before = weights(learner)
    uncredited(learner, chains(4), config, "ppo_clip")
    assert torch.equal(before, weights(learner))
    half = Learner(loaded(tiny_model().bfloat16()), OPTIMS["adamw"], reference=True)
    before = weights(half)
    uncredited(half, trees(4), config, "ppo_clip")
    assert torch.equal(before, weights(half))


@pytest.mark.parametrize("name", ["reinforce", "gspo", "dr_grpo"])
def test_a_loss_without_credit_moves_nothing(name):
    """Momentum and weight decay would, and under ppo_clip the rows are idle, so nothing moves either."""
    learner = made()
    before = weights(learner)
    uncredited(learner, chains(4), UpdateConfig(epochs=2), name)
    assert torch.equal(before, weights(learner))


@pytest.mark.parametrize("coef", [0.1, -0.1])
@pytest.mark.parametrize("optim", OPTIMS)
def test_a_uniform_policy_has_the_largest_entropy(optim, coef):
    learner = made(optim)
    with torch.no_grad():
        learner.model.get_output_embeddings().weight.zero_()
    before = weights(learner)
    graph = chains(4, restricted=True)
    metrics = uncredited(learner, graph, UpdateConfig(entropy_coef=coef, epochs=2), "ppo_clip")
    assert torch.equal(before, weights(learner)) and metrics["entropy"] > 0.5


@pytest.mark.parametrize("name", ["teacher", "likelihood_guard"])
def test_a_regularizer_at_its_optimum_moves_nothing(name):
    """The teacher is the policy; no likelihood has fallen."""
    learner = made()
    before = weights(learner)
    uncredited(learner, trees(4), UpdateConfig(kl_coef=1e-9, epochs=2, max_tokens=60), "ppo_clip", name)
    assert torch.equal(before, weights(learner))


@pytest.mark.parametrize("form", ["abs", "k2", "k3"])
def test_a_policy_that_left_its_reference_is_pulled_back(form):
    """A gradient that is not 0, however small its coefficient, moves the weights."""
    learner = made()
    graph, _ = annotate(chains(9), learner, UpdateConfig(), 1.0)
    update(learner, graph, Credit.of(np.ones(len(graph))), UpdateConfig(), loss("ppo_clip"), temperature=1.0)
    before = weights(learner)
    metrics = uncredited(learner, chains(9), UpdateConfig(kl_coef=1e-6, kl_form=form), "ppo_clip")
    assert not torch.equal(before, weights(learner)) and metrics["grad_norm"] > 0 and metrics["kl_ref"] > 1e-4


def test_rounding_by_hand():
    x = torch.tensor([0.0, ROUNDING / 2, -ROUNDING / 2, 2 * ROUNDING, -3.0], requires_grad=True)
    y = unrounded(x)
    y.sum().backward()
    assert y.tolist() == [0.0, 0.0, 0.0, x[3].item(), -3.0] and x.grad.tolist() == [0, 0, 0, 1, 1]
