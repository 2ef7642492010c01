"""EPO's band, LLDS's guard, the critic's loss."""

import math

import pytest
import torch

from agentrl.algorithms.regularizer.entropy_band import band_weight, entropy_band
from agentrl.algorithms.regularizer.likelihood_guard import fall
from agentrl.trainer.loss_terms import value_loss


def tensor(*x):
    return torch.tensor(x, dtype=torch.float64)


def test_band_by_hand():
    # history 1, band 0.8 .. 1.2: 0.5 and 1.3 are outside, 0.8 and 1 inside (the bounds are)
    entropy = tensor(0.5, 0.8, 1.0, 1.3).requires_grad_()
    out = entropy_band(entropy, tensor(1, 1, 1, 1), low=0.8, high=1.2, penalty=0.1)
    assert out.tolist() == [0.1, 0, 0, 0.1]
    assert not out.requires_grad  # as released
    smooth = entropy_band(entropy, tensor(1, 1, 1, 1), low=0.8, high=1.2, penalty=1.0, differentiable=True)
    torch.testing.assert_close(smooth, tensor(0.3, 0, 0, 0.1))
    (slope,) = torch.autograd.grad(smooth.sum(), entropy)
    assert slope.tolist() == [-1, 0, 0, 1]


def test_band_over_rows():
    # row 0 has mean 1 (inside), row 1 mean 2 (outside)
    out = entropy_band(
        tensor(0.5, 1.5, 2.0), tensor(1, 1, 1), low=0.8, high=1.2, penalty=0.1, step=torch.tensor([0, 0, 1])
    )
    assert out.tolist() == [0, 0, 0.1]


def test_band_weight_by_hand():
    # half way: 1 - 0.2 (1 - e^-2) = 0.82707; at the end 0.8 e^-3 = 0.03983, and no lower
    assert band_weight(0, 150) == 1
    assert band_weight(75, 150) == pytest.approx(0.8270670566)
    assert band_weight(150, 150) == band_weight(900, 150) == pytest.approx(0.8 * math.exp(-3))


def test_guard_by_hand():
    # step 0 (A > 0): -0.3 + 0.1 < 0: the fallen token pays 0.3. step 1 (A > 0) rose in all. step 2 (A < 0)
    # may fall.
    new, old = tensor(-1.3, -0.9, -1.2, -0.5, -2.0), tensor(-1, -1, -1, -1, -1)
    out = fall(new, old, tensor(1, 1, 1, 1, -1), torch.tensor([0, 0, 1, 1, 2]))
    torch.testing.assert_close(out, tensor(0.3, 0, 0, 0, 0))


def test_guard_pushes_likelihood_up():
    new = tensor(-1.3).requires_grad_()
    fall(new, tensor(-1.0), tensor(1.0), torch.tensor([0])).sum().backward()
    assert new.grad.tolist() == [-1]


def test_value_loss_by_hand():
    # V 1, old 0, clip 0.2: clipped 0.2. Target 1: max(0, 0.64); target 0: max(1, 0.04)
    out = value_loss(tensor(1, 1), tensor(0, 0), tensor(1, 0))
    torch.testing.assert_close(out, tensor(0.64, 1))
    torch.testing.assert_close(value_loss(tensor(1, 1), tensor(0, 0), tensor(1, 0), clip=None), tensor(0, 1))


@pytest.mark.parametrize("seed", range(3))
def test_clipping_never_lowers_the_value_loss(seed):
    value, old, target = torch.randn(3, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    assert (value_loss(value, old, target) >= value_loss(value, old, target, clip=None)).all()
