"""Small batches of tokens for loss tests, float64 so that laws hold to rounding."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentrl import catalogue
from agentrl.loss import LossInputs


def batch(
    logprob: Sequence[float],
    old: Sequence[float],
    advantage: Sequence[float] | None = None,
    *,
    positive: Sequence[float] | None = None,
    negative: Sequence[float] | None = None,
    step: Sequence[int] | None = None,
    path: Sequence[int] | None = None,
) -> LossInputs:
    """Inputs of T tokens; by default all of one step and one episode. `logprob` is a leaf that wants its
    gradient."""
    n = len(logprob)
    a = np.zeros(n) if advantage is None else np.asarray(advantage, float)
    masses = [
        np.maximum(a, 0) if positive is None else positive,
        np.maximum(-a, 0) if negative is None else negative,
    ]
    p, m = (torch.tensor(np.asarray(x, float)) for x in masses)
    return LossInputs(
        logprob=torch.tensor(np.asarray(logprob, float), requires_grad=True),
        old_logprob=torch.tensor(np.asarray(old, float)),
        ref_logprob=None,
        entropy=None,
        positive=p,
        negative=m,
        weight=torch.ones(n, dtype=torch.float64),
        step=torch.tensor(np.zeros(n, int) if step is None else step),
        path=torch.tensor(np.zeros(n, int) if path is None else path),
    )


def per_token(name: str, inputs: LossInputs, **options: Any) -> Tensor:
    """[T] loss of a preset."""
    module = catalogue.load("loss", name)
    loss: Tensor = module.loss(inputs, module.config(**options)).per_token
    return loss


def gradient(name: str, inputs: LossInputs, weight: Sequence[float] | None = None, **options: Any) -> np.ndarray:
    """[T] gradient of the weighted sum of the losses with respect to each token's log-probability."""
    loss = per_token(name, inputs, **options)
    total = loss.sum() if weight is None else (loss * torch.tensor(weight)).sum()
    (slope,) = torch.autograd.grad(total, inputs.logprob)
    return slope.numpy()
