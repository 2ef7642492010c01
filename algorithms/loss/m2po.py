"""Policy gradient for old data: tokens are masked until the second moment of the log-ratios is small.

Formula: `l = -A u` on the tokens that are left when `mean of (log u)^2 <= threshold`.

Source: M2PO, arXiv:2510.01161 ("Prosperity before Collapse"). With log r the token's log pi_new - log pi_behaviour, M2
is the mean of (log r)^2. If it is above `threshold`, the tokens of largest (log r)^2 are masked until the mean over the
others is at most `threshold`; the others contribute -A r, without clipping. Unlike a KL estimate, M2 has no terms that
cancel.

Departure: the paper masks over the whole batch, a loss here sees a micro-batch, so that the threshold holds in each of
them. The ratio is to the policy that sampled: `update.old_logprob` must be "engine". Aggregation: the mean over tokens.
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
    """threshold: largest second moment; the paper's is 0.04."""

    threshold: float = Field(0.04, gt=0)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """-A r on the tokens that are not masked; logged beside the ratio: `m2` before the mask, and the masked share."""
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
