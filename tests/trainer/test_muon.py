"""Muon against torch's own, against singular values, and its number format."""

import numpy as np
import pytest
import torch

from agentrl.trainer import Learner
from agentrl.trainer.muon import Muon, orthogonalise
from agentrl.trainer.sections import OptimConfig
from tests.toys.runs import tiny_model


def quintic(x: np.ndarray) -> np.ndarray:
    """Five iterations of a x + b x^3 + c x^5 on numbers."""
    for _ in range(5):
        x = 3.4445 * x - 4.7750 * x**3 + 2.0315 * x**5
    return x


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_only_singular_values_change_and_each_as_the_quintic_says(shape):
    # X = U S V^T: an odd matrix polynomial acts on S alone, after S was divided by the Frobenius norm.
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    u, s, vt = np.linalg.svd(matrix.double().numpy(), full_matrices=False)
    expected = u @ np.diag(quintic(s / np.sqrt((s**2).sum()))) @ vt
    np.testing.assert_allclose(orthogonalise(matrix).numpy(), expected, atol=2e-5)


def test_steps_are_those_of_torchs_muon_to_the_rounding_of_bfloat16():
    torch.manual_seed(0)
    start = [torch.randn(8, 4), torch.randn(4, 8)]
    ours, theirs = ([torch.nn.Parameter(x.clone()) for x in start] for _ in range(2))
    options = {"lr": 0.05, "weight_decay": 0.1}
    optimisers = [Muon(ours, **options), torch.optim.Muon(theirs, **options)]
    for _ in range(4):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn(mine.shape)
            other.grad = mine.grad.clone()
        for optimiser in optimisers:
            optimiser.step()
    moved = [a.detach() - x for a, x in zip(ours, start, strict=True)]
    for a, b, d in zip(ours, theirs, moved, strict=True):
        assert (a - b).abs().max() < 0.03 * d.abs().max()


def test_a_checkpoint_of_torchs_muon_is_continued():
    torch.manual_seed(0)
    ours, theirs = torch.nn.Parameter(torch.randn(4, 4)), torch.nn.Parameter(torch.zeros(4, 4))
    theirs.grad = torch.randn(4, 4)
    old = torch.optim.Muon([theirs], lr=0.05)
    old.step()
    new = Muon([ours], lr=0.05)
    new.load_state_dict(old.state_dict())
    assert torch.equal(new.state[ours]["momentum_buffer"], old.state[theirs]["momentum_buffer"])
    ours.grad = torch.randn(4, 4)
    new.step()


def test_a_learner_steps_its_matrices_with_it():
    learner = Learner(tiny_model(["a b"]), OptimConfig(name="muon"))
    (found,) = [one for one in learner.optimisers if isinstance(one, Muon)]
    assert all(parameter.ndim == 2 for parameter in found.param_groups[0]["params"])


def test_on_a_cpu_it_multiplies_in_float32():
    # bfloat16 has 8 bits of precision: its result would differ from float64's by about 1e-2.
    matrix = torch.randn(16, 16, generator=torch.Generator().manual_seed(1))
    assert orthogonalise(matrix).dtype == torch.float32
    assert orthogonalise(matrix.to(torch.bfloat16)).dtype == torch.float32
