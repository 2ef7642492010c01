"""A sigmoid gate instead of clipping.

Formula: `l = -A (4 / tau) sigmoid(tau (u - 1))`.

Source: SAPO (soft adaptive policy optimisation), arXiv:2511.20347: -A 4/tau sigmoid(tau (u - 1)), whose slope
at u = 1 is PPO's and fades on both sides; tau 1.0 at positive and 1.05 at negative advantage. Aggregation as
in GRPO's objective, a mean over sequences of means over tokens: "seq-mean-token-mean". Other methods share the acronym.
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "seq-mean-token-mean"


class Config(BaseModel, frozen=True, extra="forbid"):
    """tau_positive, tau_negative: how fast the gate closes as the ratio leaves 1, at positive and at
    negative advantage."""

    tau_positive: float = Field(1.0, gt=0)
    tau_negative: float = Field(1.05, gt=0)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """Per token; no two tokens depend on each other."""
    chosen = Surrogate(gate="sigmoid", tau_positive=config.tau_positive, tau_negative=config.tau_negative)
    return surrogate(inputs, chosen)
