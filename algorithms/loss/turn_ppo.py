"""One clip per turn, on the product of its token ratios.

Formula: `l = max(-A s, -A clip(s, 1 - clip_low, 1 + clip_high))` once per turn, `s = exp(sum over the turn of log u)`.

Source: turn-PPO, arXiv:2512.17008: rho = exp(sum of the turn's token log-ratios), l = max(-A rho, -A clip(rho)) once
per turn; the sum over turns is divided by the response tokens of the episode, and averaged over episodes
(`AGGREGATION` over `SEQUENCE`). So each of a turn's n tokens carries 1/n of the turn's loss. A drift of 0.01 nats per
token makes rho 1.22, 1.49 and 2.23 at 20, 40 and 80 tokens, so long turns clip early; `geometric=true` is the
geometric mean.
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "seq-mean-token-mean"
SEQUENCE = "episode"


class Config(BaseModel, frozen=True, extra="forbid"):
    """clip_low, clip_high: how far the ratio of a turn may fall below, or rise above, 1. geometric: geometric
    mean over the turn instead of the product.
    """

    clip_low: float = Field(0.2, ge=0, le=1)
    clip_high: float = Field(0.2, ge=0)
    geometric: bool = False


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """The loss [T] of each token. All tokens that share a ratio must be in one micro-batch."""
    chosen = Surrogate(
        granularity="turn_mean" if config.geometric else "turn_product",
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        spread=True,
    )
    return surrogate(inputs, chosen)
