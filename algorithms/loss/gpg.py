"""Group policy gradient: plain log-probability times advantage.

Formula: `l = -A log pi`.

Source: GPG, arXiv:2504.02546: -A log pi, no ratio, no clip, no reference model; token mean over the whole
batch. Its factor batch / (groups with a signal) belongs to the sampler that drops the others (dynamic
filtering keeps the batch full instead).
"""

from pydantic import BaseModel

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "token-mean"


class Config(BaseModel, frozen=True, extra="forbid"):
    """No options."""


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """Per token; no two tokens depend on each other."""
    chosen = Surrogate(gate="log_prob")
    return surrogate(inputs, chosen)
