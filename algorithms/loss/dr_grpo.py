"""Clipped loss without length normalisation.

Formula: `l = max(-A u, -A clip(u, 1 - clip_low, 1 + clip_high))`, summed and divided by a constant.

Source: Dr. GRPO, arXiv:2503.20783: PPO's clip; the sum over a response's tokens is divided by a constant, not
by its length, so that long wrong answers are not favoured (`AGGREGATION`; section 3.2 and the released code, whose
constant is the generation budget: set update.norm_tokens to it, else it is the longest response of the mini-batch).
Inside one mini-batch that is a multiple of token-mean; it differs between mini-batches, whose tokens are not
counted. It goes with a credit of std=none.
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "seq-mean-token-sum-norm"


class Config(BaseModel, frozen=True, extra="forbid"):
    """clip_low, clip_high: range of the ratio."""

    clip_low: float = Field(0.2, ge=0, le=1)
    clip_high: float = Field(0.2, ge=0)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """Per token; no two tokens depend on each other."""
    chosen = Surrogate(gate="clip", clip_low=config.clip_low, clip_high=config.clip_high)
    return surrogate(inputs, chosen)
