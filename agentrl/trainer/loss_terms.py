"""The KL term of the policy loss, and the critic's loss.

Both functions take flat tensors over the tokens or values of a micro-batch and return one number per entry. The caller
multiplies these numbers by its aggregation weights and adds them up.

Letters: K tokens, V values that the critic read.
"""

import torch
from torch import Tensor

from agentrl.trainer.sections import KlForm

LIMIT = 20.0  # largest |log-ratio| in k3, in nats


def kl_term(logprob: Tensor, reference: Tensor, form: KlForm) -> Tensor:
    """[K] estimate of KL(pi || ref) per token, from one sample.

    Source: Schulman, "Approximating KL divergence" (2020); k3 is clamped to +-10 as in verl. Before this, the log-ratio
    in k3 is clamped to +-20. The clamp of the log-ratio changes no value, because k3 is at its bound of 10 beyond +-20.
    Without this clamp exp could overflow, and the gradient would be 0 * inf, which is NaN.
    """
    apart = logprob - reference  # [K]
    if form == "k1":
        return apart
    if form == "abs":
        return apart.abs()
    if form == "k2":
        return 0.5 * apart**2
    near = apart.clamp(-LIMIT, LIMIT)  # [K] at -20 and 20, k3 is exp(20) - 21 and about 19, both above its bound of 10
    return ((-near).exp() + near - 1).clamp(-10, 10)


def value_loss(value: Tensor, old_value: Tensor, target: Tensor, clip: float | None = 0.2) -> Tensor:
    """[V] squared error of the critic: the larger one of the plain error and the error of the clipped value.

    Source: PPO's released code: max((V - G)^2, (old + clip(V - old, -clip, clip) - G)^2). That code also multiplies by
    0.5, which belongs to the critic's coefficient and is left out here. With `clip` None the error is the plain square.
    The critic uses the plain square on branched graphs, because the target of a shared step there is a mean of the
    returns of its paths.
    """
    error = (value - target) ** 2  # [V]
    if clip is not None:
        clipped = old_value + (value - old_value).clamp(-clip, clip)  # [V]
        error = torch.maximum(error, (clipped - target) ** 2)
    return error
