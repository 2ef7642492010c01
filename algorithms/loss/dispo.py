"""Clipped importance weights with bounds of their own for each sign of the advantage.

Formula: `l = -A sg(clip(u, 1 - low, 1 + high)) log pi`, where sg(x) is x as a constant, without gradient; low and high
are `positive_low` and `positive_high` if A > 0, `negative_low` and `negative_high` if A < 0.

Source: DISPO, arXiv:2602.00983. It takes CISPO's clipped weight with four bounds: a lower and an upper bound at
positive advantage, and a lower and an upper bound at negative advantage. The paper tunes its values per model; the
defaults here are ours. The aggregation was not checked against the paper; "token-mean" is that of `cispo`.
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "token-mean"


class Config(BaseModel, frozen=True, extra="forbid"):
    """The bounds of the weight, for each sign of the advantage.

    positive_low: at positive advantage the weight is at least 1 - positive_low.
    positive_high: at positive advantage the weight is at most 1 + positive_high.
    negative_low: at negative advantage the weight is at least 1 - negative_low.
    negative_high: at negative advantage the weight is at most 1 + negative_high.
    """

    positive_low: float = Field(1.0, ge=0, le=1)
    positive_high: float = Field(1.0, ge=0)
    negative_low: float = Field(0.5, ge=0, le=1)
    negative_high: float = Field(0.2, ge=0)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """The loss [T] of each token, which depends on no other token."""
    chosen = Surrogate(
        gate="weight_clip",
        clip_low=config.positive_low,
        clip_high=config.positive_high,
        negative_low=config.negative_low,
        negative_high=config.negative_high,
    )
    return surrogate(inputs, chosen)
