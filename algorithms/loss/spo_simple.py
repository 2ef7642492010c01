"""A quadratic penalty instead of clipping.

Formula: `l = -(A u - |A| (u - 1)^2 / (2 clip))`.

Source: SPO (simple policy optimisation), arXiv:2401.16025 (ICML 2025). The option `clip` is the paper's epsilon. The
loss is smallest at the ratio u = 1 + sign(A) clip. Beyond this ratio the gradient pulls u back, where PPO's clipped
loss has no gradient. The paper averages over actions; here the actions are tokens ("token-mean"). Five other methods
are called SPO too.
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "token-mean"


class Config(BaseModel, frozen=True, extra="forbid"):
    """clip: how far from 1 the ratio is where the loss is smallest."""

    clip: float = Field(0.2, gt=0)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """The loss [T] of each token, which depends on no other token."""
    chosen = Surrogate(gate="quadratic", clip_low=config.clip, clip_high=config.clip)
    return surrogate(inputs, chosen)
