"""A quadratic penalty instead of clipping.

Formula: `l = -(A u - |A| (u - 1)^2 / (2 eps))`.

Source: SPO (simple policy optimisation), arXiv:2401.16025 (ICML 2025): -(A u - |A| (u - 1)^2 / (2 eps)),
whose optimum in u lies at 1 + sign(A) eps, so the ratio is pulled back where PPO's clip has no gradient. The paper
averages over actions, which are tokens here: "token-mean". Five other methods share the acronym.
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "token-mean"


class Config(BaseModel, frozen=True, extra="forbid"):
    """eps: distance of the optimum from 1."""

    eps: float = Field(0.2, gt=0)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """Per token; no two tokens depend on each other."""
    chosen = Surrogate(gate="quadratic", clip_low=config.eps, clip_high=config.eps)
    return surrogate(inputs, chosen)
