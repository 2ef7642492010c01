"""REINFORCE: log-probability times advantage, with an importance weight if asked for.

Formula: `l = -A log pi`; with `corrected`, `l = -A u`.

Source: Williams (1992). The loss of a sampled token is -A log pi, also if an older policy sampled the token. With
`corrected=true` the loss is -A u. Its gradient, -A u grad log pi, is importance-weighted and not clipped. The source
sums over the tokens. The default here, "token-mean", divides this sum by the number of tokens of the mini-batch.
"""

from pydantic import BaseModel

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "token-mean"


class Config(BaseModel, frozen=True, extra="forbid"):
    """corrected: multiply the gradient of each token by the token's ratio u, as an importance weight."""

    corrected: bool = False


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """The loss [T] of each token, which depends on no other token."""
    chosen = Surrogate(gate="none" if config.corrected else "log_prob")
    return surrogate(inputs, chosen)
