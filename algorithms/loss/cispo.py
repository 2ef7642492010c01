"""Clipped importance weights instead of clipped updates.

Formula: `l = -A sg(clip(u, 1 - clip_low, 1 + clip_high)) log pi`, sg without gradient.

Source: CISPO (MiniMax-M1), arXiv:2506.13585, Eq. 4-5: -A sg(clip(u)) log pi, so every token keeps a gradient.
No lower bound in the paper (clip_low=1 leaves u >= 0 alone); clip_high there is tuned. Aggregation:
"token-mean".
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "token-mean"


class Config(BaseModel, frozen=True, extra="forbid"):
    """clip_low, clip_high: how far the weight may fall below, or rise above, 1."""

    clip_low: float = Field(1.0, ge=0, le=1)
    clip_high: float = Field(1.0, ge=0)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """Per token; no two tokens depend on each other."""
    chosen = Surrogate(gate="weight_clip", clip_low=config.clip_low, clip_high=config.clip_high)
    return surrogate(inputs, chosen)
