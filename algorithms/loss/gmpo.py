"""Geometric mean of clipped token ratios.

Formula: `l = -A exp(mean over the sequence of clip(log u))`.

Source: GMPO, arXiv:2507.20673: the sequence's loss is -A (prod_t rho_t)^(1/T), each token's log-ratio clipped
against the advantage's sign before the mean (at A > 0 from above, at A < 0 from below), range (e^-0.4,
e^0.4). The objective is a mean over sequences of one number each: "seq-mean-token-mean".
"""

from pydantic import Field

from agentrl.algorithms.loss._surrogate import Sequences, Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "seq-mean-token-mean"


class Config(Sequences, frozen=True):
    """clip_low, clip_high: how far the logarithm of a token's ratio may fall below, or rise above, 0."""

    clip_low: float = Field(0.4, ge=0)
    clip_high: float = Field(0.4, ge=0)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """All tokens of what shares a ratio must be in one micro-batch."""
    chosen = Surrogate(
        granularity=config.granularity,
        gate="geometric",
        clip_low=config.clip_low,
        clip_high=config.clip_high,
    )
    return surrogate(inputs, chosen)
