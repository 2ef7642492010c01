"""The losses of the protocol: by hand, their gradients, and against a slow loop."""

import math

import numpy as np
import pytest
import torch

from agentrl.training_server.losses import token_loss
from agentrl.training_server.verbs import LOSSES, ClipBounds

BOUNDS = ClipBounds()


def columns(logprobs, advantages, weights=None):
    weights = [1.0] * len(logprobs) if weights is None else weights
    return {
        name: torch.tensor(x) for name, x in (("logprobs", logprobs), ("advantages", advantages), ("weights", weights))
    }


def test_losses_by_hand():
    # Ratios 2 (log-prob moved by log 2) and 1/2, advantages 3 and -1, bounds 0.8 and 1.2.
    old = [-1.0, -1.0]
    new = torch.tensor([-1.0 + math.log(2), -1.0 - math.log(2)])
    given = columns(old, [3.0, -1.0], [1.0, 2.0])
    # cross_entropy: -1 * l_1, -2 * l_2
    assert token_loss("cross_entropy", new, given, BOUNDS).tolist() == pytest.approx(
        [-new[0].item(), -2 * new[1].item()]
    )
    # importance_sampling: -(2 * 3) = -6; -(0.5 * -1) * 2 = 1
    assert token_loss("importance_sampling", new, given, BOUNDS).tolist() == pytest.approx([-6.0, 1.0])
    # ppo: -min(6, 1.2 * 3) = -3.6; -min(-0.5, 0.8 * -1) * 2 = 1.6
    assert token_loss("ppo", new, given, BOUNDS).tolist() == pytest.approx([-3.6, 1.6])
    # cispo: -1.2 * 3 * l_1; -0.8 * -1 * l_2 * 2
    wanted = [-3.6 * new[0].item(), 1.6 * new[1].item()]
    assert token_loss("cispo", new, given, BOUNDS).tolist() == pytest.approx(wanted)


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"cross_entropy"}))
@pytest.mark.parametrize("seed", range(3))
def test_at_ratio_one_every_policy_loss_has_the_gradient_minus_the_advantage(name, seed):
    rng = np.random.default_rng(seed)
    logprob = torch.tensor(rng.normal(-1, 0.5, 5), requires_grad=True)
    advantage, weight = rng.normal(size=5), rng.uniform(0.5, 2, 5)
    given = columns(logprob.detach().numpy(), advantage, weight)
    token_loss(name, logprob, given, BOUNDS).sum().backward()
    np.testing.assert_allclose(logprob.grad.numpy(), -weight * advantage, rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_losses_equal_a_slow_loop(seed):
    rng = np.random.default_rng(seed)
    new, old, advantage, weight = rng.normal(size=(4, 20))
    low, high = 0.7, 1.5
    wanted = {name: np.zeros(20) for name in LOSSES}
    for k in range(20):
        ratio = math.exp(new[k] - old[k])
        clipped = min(max(ratio, low), high)
        wanted["cross_entropy"][k] = -weight[k] * new[k]
        wanted["importance_sampling"][k] = -weight[k] * ratio * advantage[k]
        wanted["ppo"][k] = -weight[k] * min(ratio * advantage[k], clipped * advantage[k])
        wanted["cispo"][k] = -weight[k] * clipped * advantage[k] * new[k]
    for name in LOSSES:
        found = token_loss(name, torch.tensor(new), columns(old, advantage, weight), ClipBounds(low, high))
        np.testing.assert_allclose(found.numpy(), wanted[name])


def test_clipping_stops_the_gradient_of_ppo_and_not_that_of_cispo():
    logprob = torch.tensor([0.0], requires_grad=True)
    given = columns([-1.0], [1.0])  # ratio e, above 1.2
    (ppo,) = torch.autograd.grad(token_loss("ppo", logprob, given, BOUNDS).sum(), logprob)
    (cispo,) = torch.autograd.grad(token_loss("cispo", logprob, given, BOUNDS).sum(), logprob)
    assert ppo.item() == 0 and cispo.item() == pytest.approx(-1.2)
