"""Clipped importance weights instead of clipped updates.

Formula: `l = -A sg(clip(u, 1 - clip_low, 1 + clip_high)) log pi`, where sg(x) is x as a constant, without gradient.

Source: CISPO (MiniMax-M1), arXiv:2506.13585, Eq. 4-5. The clipped ratio, called the weight, is a constant factor of log
pi. The gradient of a token is therefore not cut off where the ratio is clipped. The paper has no lower bound;
clip_low=1 does the same, because u is never below 0. The paper tunes clip_high. The default aggregation is
"token-mean".
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "token-mean"


class Config(BaseModel, frozen=True, extra="forbid"):
    """clip_low: the weight is at least 1 - clip_low. clip_high: the weight is at most 1 + clip_high."""

    clip_low: float = Field(1.0, ge=0, le=1)
    clip_high: float = Field(1.0, ge=0)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """The loss [T] of each token, which depends on no other token."""
    chosen = Surrogate(gate="weight_clip", clip_low=config.clip_low, clip_high=config.clip_high)
    return surrogate(inputs, chosen)
