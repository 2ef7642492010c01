"""Probabilities smoothed towards the old policy instead of clipping.

Formula: `l = -A ((1 - a) u + a)`.

Source: PSPO (probability smoothing policy optimisation), arXiv:2509.21282: the new probability is mixed with
the old one, pi' = (1 - a) pi + a pi_old, so the ratio becomes (1 - a) u + a; no clip. a = 0 is unclipped PPO.
Its aggregation was not checked against its text; "token-mean" is that of `ppo_clip`, whose clip it replaces.
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "token-mean"


class Config(BaseModel, frozen=True, extra="forbid"):
    """smoothing: share a of the old policy in the mixture."""

    smoothing: float = Field(0.1, ge=0, le=1)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """Per token; no two tokens depend on each other."""
    chosen = Surrogate(gate="smooth", smoothing=config.smoothing)
    return surrogate(inputs, chosen)
