"""One clip per turn, on the product of its token ratios.

Formula: `l = max(-A s, -A clip(s, 1 - clip_low, 1 + clip_high))` once per turn, `s = exp(sum over the turn of log u)`.

Source: turn-PPO, arXiv:2512.17008. The paper sums the losses of an episode's turns, divides the sum by the number of
response tokens of the episode, and averages over episodes (`AGGREGATION` over `SEQUENCE`). Therefore each of the n
tokens of a turn carries 1/n of the turn's loss here. If the log-probability of every token rises by 0.01 nats, s is
1.22, 1.49 and 2.23 for turns of 20, 40 and 80 tokens, so long turns reach the clip bound early. With `geometric=true`,
s is the geometric mean of the token ratios.
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "seq-mean-token-mean"
SEQUENCE = "episode"


class Config(BaseModel, frozen=True, extra="forbid"):
    """clip_low: the lower bound of a turn's ratio is 1 - clip_low. clip_high: the upper bound of a turn's ratio is
    1 + clip_high. geometric: the ratio of a turn is the geometric mean of its token ratios, not their product.
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
