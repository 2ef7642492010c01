"""Geometric mean of clipped token ratios.

Formula: `l = -A exp(mean over the sequence of clip(log u))`, where clip limits log u to at most clip_high if A > 0, and
to at least -clip_low if A < 0.

Source: GMPO, arXiv:2507.20673. The paper's loss of a sequence of T tokens with the ratios rho_t is -A (prod_t
rho_t)^(1/T). The paper clips each token's ratio before this mean, to the range (e^-0.4, e^0.4): from above at A > 0,
from below at A < 0. The paper's objective is the mean of these losses over the sequences. Here every token carries the
loss of its sequence, so "seq-mean-token-mean" computes this mean.
"""

from pydantic import Field

from agentrl.algorithms.loss._surrogate import Sequences, Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "seq-mean-token-mean"


class Config(Sequences, frozen=True):
    """clip_low: at negative advantage the logarithm of a token's ratio is at least -clip_low. clip_high: at positive
    advantage the logarithm of a token's ratio is at most clip_high."""

    clip_low: float = Field(0.4, ge=0)
    clip_high: float = Field(0.4, ge=0)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """The loss [T] of each token. All tokens that share a ratio must be in one micro-batch."""
    chosen = Surrogate(
        granularity=config.granularity,
        gate="geometric",
        clip_low=config.clip_low,
        clip_high=config.clip_high,
    )
    return surrogate(inputs, chosen)
