"""Probabilities smoothed towards the old policy instead of clipping.

Formula: `l = -A ((1 - a) u + a)`, where a is the option `smoothing`.

Source: PSPO (probability smoothing policy optimisation), arXiv:2509.21282. The paper mixes the new probability with the
old one, pi' = (1 - a) pi + a pi_old, so the ratio becomes (1 - a) u + a. The loss is not clipped; with a = 0 it is
PPO's loss without the clip. The aggregation was not checked against the paper; "token-mean" is that of `ppo_clip`.
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "token-mean"


class Config(BaseModel, frozen=True, extra="forbid"):
    """smoothing: share of the old policy in the mixture, the paper's a."""

    smoothing: float = Field(0.1, ge=0, le=1)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """The loss [T] of each token, which depends on no other token."""
    chosen = Surrogate(gate="smooth", smoothing=config.smoothing)
    return surrogate(inputs, chosen)
