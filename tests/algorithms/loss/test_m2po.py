"""M2PO's mask: the tokens of largest squared log-ratio go until the mean of the others is small."""

import numpy as np
import pytest
import torch

from agentrl.algorithms.loss.m2po import Config, loss, within
from agentrl.loss import LossInputs


def inputs(log_ratio: list[float], advantage: list[float]) -> LossInputs:
    own = torch.tensor(log_ratio, dtype=torch.float64, requires_grad=True)
    a = torch.tensor(advantage, dtype=torch.float64)
    n = len(log_ratio)
    return LossInputs(
        logprob=own, old_logprob=torch.zeros(n, dtype=torch.float64), ref_logprob=None, entropy=None,
        positive=a.clamp(min=0), negative=(-a).clamp(min=0), weight=torch.ones(n, dtype=torch.float64),
        step=torch.arange(n), path=torch.zeros(n, dtype=torch.int64),
    )  # fmt: skip


def test_the_mask_by_hand():
    # squares 0.01, 0.04, 1, 4; means of the smallest 1, 2, 3, 4: 0.01, 0.025, 0.35, ...: the threshold 0.03 leaves two
    x = inputs([0.1, -2.0, 0.2, -1.0], [1.0, 1.0, -1.0, -1.0])
    found = loss(x, Config(threshold=0.03))
    np.testing.assert_allclose(found.per_token.detach(), [-np.exp(0.1), 0, np.exp(0.2), 0])
    assert found.metrics["m2_masked"].tolist() == [0, 1, 0, 1]
    found.per_token.sum().backward()
    np.testing.assert_allclose(x.logprob.grad, [-np.exp(0.1), 0, np.exp(0.2), 0])  # no clip: -A r


@pytest.mark.parametrize("seed", range(20))
def test_the_mask_of_a_slow_loop(seed):
    rng = np.random.default_rng(seed)
    squared = rng.gamma(0.5, 0.2, size=int(rng.integers(1, 30)))
    threshold = float(rng.choice([0.01, 0.04, 0.2]))
    left = list(range(len(squared)))
    while left and np.mean(squared[left]) > threshold:
        left.remove(max(left, key=lambda i: squared[i]))
    assert np.flatnonzero(within(torch.from_numpy(squared), threshold)).tolist() == left


def test_fresh_data_are_the_plain_gradient():
    x = inputs([0.0] * 5, [1.0, -1.0, 0.5, 0.0, 2.0])
    np.testing.assert_allclose(loss(x, Config()).per_token.detach(), [-1.0, 1.0, -0.5, 0.0, -2.0])
