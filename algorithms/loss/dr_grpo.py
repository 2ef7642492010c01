"""Clipped loss without length normalisation.

Formula: `l = max(-A u, -A clip(u, 1 - clip_low, 1 + clip_high))`; the sum over a response is divided by a constant.

Source: Dr. GRPO, arXiv:2503.20783, section 3.2, and its released code. The loss of a token is PPO's. The paper divides
the sum over a response's tokens by a constant, not by the response's length, so that long wrong answers are not
favoured. In the released code the constant is the generation budget. Here (`AGGREGATION`) it is the number of tokens of
the mini-batch's longest response, so it differs between mini-batches. Compared with "token-mean", the loss of a
mini-batch is multiplied by (mean length of its responses) / (the constant), so mini-batches with longer responses count
more. Use this loss with a credit method that does not divide by the standard deviation (std=none).
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "seq-mean-token-sum-norm"


class Config(BaseModel, frozen=True, extra="forbid"):
    """clip_low: the lower bound of the ratio is 1 - clip_low. clip_high: the upper bound of the ratio is
    1 + clip_high."""

    clip_low: float = Field(0.2, ge=0, le=1)
    clip_high: float = Field(0.2, ge=0)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """The loss [T] of each token, which depends on no other token."""
    chosen = Surrogate(gate="clip", clip_low=config.clip_low, clip_high=config.clip_high)
    return surrogate(inputs, chosen)
