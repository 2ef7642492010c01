"""A quadratic penalty instead of clipping.

Formula: `l = -(A u - |A| (u - 1)^2 / (2 clip))`.

Source: SPO (simple policy optimisation), arXiv:2401.16025 (ICML 2025): -(A u - |A| (u - 1)^2 / (2 clip)), whose optimum
in u lies at 1 + sign(A) clip (the option `clip` is the paper's epsilon), so the ratio is pulled back where PPO's clip
has no gradient. The paper averages over actions, which are tokens here: "token-mean". Five other methods share the
acronym.
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "token-mean"


class Config(BaseModel, frozen=True, extra="forbid"):
    """clip: distance of the optimum from 1."""

    clip: float = Field(0.2, gt=0)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """Per token; no two tokens depend on each other."""
    chosen = Surrogate(gate="quadratic", clip_low=config.clip, clip_high=config.clip)
    return surrogate(inputs, chosen)
