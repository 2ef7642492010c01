"""REINFORCE.

Formula: `l = -A log pi`; with `corrected`, `l = -A u`.

Source: Williams (1992): -A log pi on the tokens as sampled. Off-policy data are not corrected; with `corrected=true`
the loss is -A u, whose gradient is -A u grad log pi: importance-weighted, unclipped. Aggregation: the sum over all
tokens divided by their number ("token-mean"); the source has the sum, a constant multiple of it.
"""

from pydantic import BaseModel

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "token-mean"


class Config(BaseModel, frozen=True, extra="forbid"):
    """corrected: importance-weight the gradient."""

    corrected: bool = False


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """Per token; no two tokens depend on each other."""
    chosen = Surrogate(gate="none" if config.corrected else "log_prob")
    return surrogate(inputs, chosen)
