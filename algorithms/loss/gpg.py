"""Group policy gradient: plain log-probability times advantage.

Formula: `l = -A log pi`.

Source: GPG, arXiv:2504.02546. The loss has no ratio, no clip and no reference model; it is averaged over all tokens of
the batch. Groups whose rewards are all equal give no gradient. The paper therefore multiplies the loss by (groups of
the batch) / (groups whose rewards differ). This file does not multiply: take the sampler `dynamic`, which plays further
tasks in place of such groups.
"""

from pydantic import BaseModel

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "token-mean"


class Config(BaseModel, frozen=True, extra="forbid"):
    """No options."""


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """The loss [T] of each token, which depends on no other token."""
    chosen = Surrogate(gate="log_prob")
    return surrogate(inputs, chosen)
