"""Clipped importance weights with bounds of their own for each sign of the advantage.

Formula: `l = -A sg(clip(u, 1 - low, 1 + high)) log pi`, with low and high by the sign of A.

Source: DISPO, arXiv:2602.00983: CISPO's weight, with four bounds: weights above and below 1, at positive and
at negative advantage. The defaults are ours: the values of the paper were tuned per model. Its
aggregation was not checked against its text; "token-mean" is CISPO's.
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "token-mean"


class Config(BaseModel, frozen=True, extra="forbid"):
    """positive_low, positive_high: how far the weight may fall below, or rise above, 1 at positive advantage.
    negative_low, negative_high: the same at negative advantage."""

    positive_low: float = Field(1.0, ge=0, le=1)
    positive_high: float = Field(1.0, ge=0)
    negative_low: float = Field(0.5, ge=0, le=1)
    negative_high: float = Field(0.2, ge=0)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """Per token; no two tokens depend on each other."""
    chosen = Surrogate(
        gate="weight_clip",
        clip_low=config.positive_low,
        clip_high=config.positive_high,
        negative_low=config.negative_low,
        negative_high=config.negative_high,
    )
    return surrogate(inputs, chosen)
