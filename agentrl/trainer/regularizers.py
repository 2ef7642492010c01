"""Loss terms beside the policy gradient: KL, EPO's entropy band, LLDS's likelihood guard, the critic's loss.

All take flat tensors of the tokens (or steps) of a micro-batch and return one number each, to be weighted by
the caller's aggregation weights and summed. Letters: T tokens, V values (steps with a value).
"""

import math

import torch
from torch import Tensor

from agentrl.trainer.sections import KlForm


def kl_term(logprob: Tensor, reference: Tensor, form: KlForm) -> Tensor:
    """Per-token estimate of KL(pi || ref) from one sample, [K].

    Source: Schulman, "Approximating KL divergence" (2020); k3 clamped to +-10 as in verl.
    """
    apart = logprob - reference  # [K]
    if form == "k1":
        return apart
    if form == "abs":
        return apart.abs()
    if form == "k2":
        return 0.5 * apart**2
    return ((-apart).exp() + apart - 1).clamp(-10, 10)


def entropy_band(
    entropy: Tensor,
    history: Tensor,
    *,
    low: float,
    high: float,
    penalty: float = 0.1,
    step: Tensor | None = None,
    differentiable: bool = False,
) -> Tensor:
    """[T] penalty on tokens whose entropy leaves the band of its own past.

    Source: EPO, arXiv:2509.22576, official generate_entropy_penalty: `penalty` where the entropy is outside
    [low, high] * history (strictly), 0 inside; the whole loss is policy - c (entropy - s w(epoch) penalty),
    with w from `band_weight`. As released it is a constant: it moves the logged loss and has no gradient.
    `differentiable=True` is the reading of the paper that smooths the entropy: penalty times the distance to
    the band.

    Args:
        entropy: [T] nats.
        history: [T], mean over past epochs of the mean entropy at the token's environment step index.
        low, high: the band, as multiples of `history`.
        step: [T] int64, the row of each token: the band then judges each row's mean entropy (official mode
            "seq").
    """
    if step is not None:
        _, key = torch.unique(step, return_inverse=True)
        sums = torch.zeros(int(key.max()) + 1, dtype=entropy.dtype, device=entropy.device).index_add(0, key, entropy)
        entropy = (sums / torch.bincount(key))[key]
    distance = torch.relu(low * history - entropy) + torch.relu(entropy - high * history)  # [T]
    if differentiable:
        return penalty * distance
    return penalty * (distance > 0).to(entropy.dtype)


def band_weight(epoch: int, epochs: int) -> float:
    """EPO's weight of the band: from 1 to 0.827 in the first half of training, then from 0.8 to 0.04 in the
    second.

    1 - 0.2 (1 - exp(-2x)) and 0.8 exp(-3x), x the share of the half that is done.
    """
    half = epochs / 2
    if epoch <= half:
        return 1 - 0.2 * (1 - math.exp(-2 * epoch / half))
    return 0.8 * math.exp(-3 * min((epoch - half) / half, 1.0))


def likelihood_guard(logprob: Tensor, old_logprob: Tensor, positive: Tensor, negative: Tensor, step: Tensor) -> Tensor:
    """[T] how far each token's likelihood fell, on actions that should not have lost any.

    Source: LLDS, arXiv:2512.04220 (abstract and recollection): only for an action (the tokens of a step) of
    advantage >= 0 whose total log-likelihood fell, old - new on the tokens that fell, 0 elsewhere;
    coefficient about 0.1.
    """
    # Limit: on a step that several paths share, the sign is that of their pooled advantage.
    fell = torch.relu(old_logprob - logprob)  # [T]
    _, key = torch.unique(step, return_inverse=True)
    change = torch.zeros(int(key.max()) + 1 if len(key) else 0, dtype=logprob.dtype, device=logprob.device)
    change = change.index_add(0, key, (logprob - old_logprob).detach())  # [steps]
    guarded = (change[key] < 0) & (positive - negative >= 0)  # [T]
    return fell * guarded


def value_loss(value: Tensor, old_value: Tensor, target: Tensor, clip: float | None = 0.2) -> Tensor:
    """[V] squared error of the critic, pessimistically clipped around the old value.

    Source: PPO's released code: max((V - G)^2, (old + clip(V - old, -clip, clip) - G)^2), there halved, which
    is the critic's coefficient; clip None for the plain square. On shared steps the target is the weighted
    mean of the paths' returns, and nothing is clipped.
    """
    error = (value - target) ** 2  # [V]
    if clip is not None:
        clipped = old_value + (value - old_value).clamp(-clip, clip)  # [V]
        error = torch.maximum(error, (clipped - target) ** 2)
    return error
