"""Clipped loss with a higher upper bound ("clip-higher").

Formula: `l = max(-A u, -A clip(u, 1 - clip_low, 1 + clip_high))`.

Source: DAPO, arXiv:2503.14476, Eq. 10: PPO's clip with range [1 - 0.2, 1 + 0.28], the sum over all
tokens of the batch divided by their number (`AGGREGATION`). Dynamic sampling and the overlong penalty of the same
paper are the sampler's and the reward's.
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "token-mean"  # Eq. 10


class Config(BaseModel, frozen=True, extra="forbid"):
    """clip_low, clip_high: range of the ratio."""

    clip_low: float = Field(0.2, ge=0, le=1)
    clip_high: float = Field(0.28, ge=0)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """Per token; no two tokens depend on each other."""
    chosen = Surrogate(gate="clip", clip_low=config.clip_low, clip_high=config.clip_high)
    return surrogate(inputs, chosen)
