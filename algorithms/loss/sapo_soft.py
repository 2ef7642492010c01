"""A sigmoid gate instead of clipping.

Formula: `l = -A (4 / tau) sigmoid(tau (u - 1))`, where tau is the option `tau_positive` if A > 0 and `tau_negative` if
A < 0.

Source: SAPO (soft adaptive policy optimisation), arXiv:2511.20347. At u = 1 the slope of this loss is the slope of
PPO's loss, and the slope falls towards 0 on both sides of u = 1. The paper's tau is 1.0 at positive and 1.05 at
negative advantage. The aggregation is that of GRPO's objective, the mean over sequences of the means over tokens:
"seq-mean-token-mean". Other methods are called SAPO too.
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "seq-mean-token-mean"


class Config(BaseModel, frozen=True, extra="forbid"):
    """The temperatures of the gate.

    tau_positive: at positive advantage, how fast the slope falls as the ratio moves away from 1.
    tau_negative: at negative advantage, how fast the slope falls as the ratio moves away from 1.
    """

    tau_positive: float = Field(1.0, gt=0)
    tau_negative: float = Field(1.05, gt=0)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """The loss [T] of each token, which depends on no other token."""
    chosen = Surrogate(gate="sigmoid", tau_positive=config.tau_positive, tau_negative=config.tau_negative)
    return surrogate(inputs, chosen)
