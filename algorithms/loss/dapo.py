"""Clipped loss with a higher upper bound ("clip-higher").

Formula: `l = max(-A u, -A clip(u, 1 - clip_low, 1 + clip_high))`.

Source: DAPO, arXiv:2503.14476, Eq. 10. The paper takes PPO's clipped loss with the range [1 - 0.2, 1 + 0.28], sums it
over all tokens of the batch, and divides the sum by the number of these tokens. The default aggregation, "token-mean",
does the same over a mini-batch. The dynamic sampling of this paper is the sampler `dynamic`, and its overlong penalty
is the reward transform `overlong`.
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "token-mean"  # Eq. 10


class Config(BaseModel, frozen=True, extra="forbid"):
    """clip_low: the lower bound of the ratio is 1 - clip_low. clip_high: the upper bound of the ratio is
    1 + clip_high."""

    clip_low: float = Field(0.2, ge=0, le=1)
    clip_high: float = Field(0.28, ge=0)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """The loss [T] of each token, which depends on no other token."""
    chosen = Surrogate(gate="clip", clip_low=config.clip_low, clip_high=config.clip_high)
    return surrogate(inputs, chosen)
