"""Clipped policy-gradient loss with asymmetric range and dual clip.

Formula: `l = max(-A u, -A clip(u, 1 - clip_low, 1 + clip_high))`, at most `-A dual_clip` where `A < 0`.

Source: PPO, Schulman et al., arXiv:1707.06347, Eq. 7, for the clip; Ye et al., arXiv:1912.09729, Eq. 5, for the dual
clip; DAPO (`dapo`) for bounds that differ. The default aggregation, "token-mean", is that of the released verl-agent.
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "token-mean"
ZERO_WITHOUT_CREDIT = True  # so this loss needs no forward pass of a step whose credit is 0


class Config(BaseModel, frozen=True, extra="forbid"):
    """The bounds.

    clip_low: the lower bound of the ratio is 1 - clip_low.
    clip_high: the upper bound of the ratio is 1 + clip_high.
    dual_clip: at negative advantage A the loss of a token is at most -A dual_clip; None: no such bound.
    """

    clip_low: float = Field(0.2, ge=0, le=1)
    clip_high: float = Field(0.2, ge=0)
    dual_clip: float | None = Field(3.0, gt=1)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """The loss [T] of each token, which depends on no other token."""
    chosen = Surrogate(gate="clip", clip_low=config.clip_low, clip_high=config.clip_high, dual_clip=config.dual_clip)
    return surrogate(inputs, chosen)
