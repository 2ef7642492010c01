"""Policy gradient for old data: tokens are masked until the second moment of the log-ratios is small.

Formula: `l = -A u` on the tokens that are left, 0 on the masked ones. The tokens with the largest `(log u)^2` are
masked until the mean of `(log u)^2` over the tokens that are left is at most `threshold`.

Source: M2PO, arXiv:2510.01161 ("Prosperity before Collapse"). M2 is the mean of (log u)^2, where log u is the token's
log pi_new - log pi_behaviour and pi_behaviour is the policy that sampled the token. The loss of the tokens that are
left is not clipped. No term of M2 is negative, so positive and negative log-ratios do not cancel each other, as they
can in the mean of the log-ratios, which estimates the KL divergence.

Departure: the paper masks over the whole batch. Here a loss sees one micro-batch at a time, so the threshold holds in
each micro-batch. `update.old_logprob` must be "engine", because the ratio is to the policy that sampled the tokens. The
default aggregation is the mean over tokens ("token-mean").
"""

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

if TYPE_CHECKING:
    from torch import Tensor

AGGREGATION = "token-mean"
BEHAVIOUR = True


class Config(BaseModel, frozen=True, extra="forbid"):
    """threshold: largest M2, the mean squared log-ratio of the tokens that are left; the paper takes 0.04."""

    threshold: float = Field(0.04, gt=0)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """-A u on the tokens that are left, 0 on the masked ones.

    Further metrics: the mean of `m2` is M2 before masking, the mean of `m2_masked` is the share of masked tokens.
    """
    plain = surrogate(inputs, Surrogate(gate="none"))
    squared = (inputs.logprob - inputs.old_logprob).detach() ** 2  # [T]
    kept = within(squared, config.threshold)  # [T]
    logged = {"m2": squared, "m2_masked": 1 - kept.to(squared.dtype)}
    return LossOutput(plain.per_token * kept, {**plain.metrics, **logged})


def within(squared: "Tensor", threshold: float) -> "Tensor":
    """[T] bool, the tokens that are left when those of largest `squared` [T] are masked until the mean is at most
    `threshold`."""
    import torch

    order = torch.argsort(squared, stable=True)
    count = torch.arange(1, len(squared) + 1, device=squared.device)
    mean = squared[order].double().cumsum(0) / count  # [T] of the smallest 1, 2, ...; ascending
    kept = torch.zeros(len(squared), dtype=torch.bool, device=squared.device)
    kept[order[mean <= threshold]] = True
    return kept
