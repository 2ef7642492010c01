"""Clipped loss on the geometric-mean ratio of a whole response.

Formula: `l = max(-A s, -A clip(s, 1 - clip_low, 1 + clip_high))`, `s = exp(mean over the sequence of log u)`.

Source: GSPO, arXiv:2507.18071: Eq. 5-7 (`form=sequence`) and GSPO-token (`form=token`, which verl-agent takes). The
paper clips s to [1 - 3e-4, 1 + 4e-4]. In both forms s has the same value. With `form=token`, only the token's own
log-probability has a gradient in the loss of a token. If all tokens of a sequence have the same advantage, both forms
have the same gradient. Eq. 5 is a mean over sequences. Here every token carries the loss of its sequence, so
"seq-mean-token-mean" computes this mean. A sequence is the response of one step (`sequence=step`, as in verl-agent) or
all responses of an episode (`sequence=episode`).
"""

from typing import Literal

from pydantic import Field

from agentrl.algorithms.loss._surrogate import Sequences, Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "seq-mean-token-mean"


class Config(Sequences, frozen=True):
    """clip_low: the lower bound of a sequence's ratio is 1 - clip_low. clip_high: the upper bound of a sequence's ratio
    is 1 + clip_high. form: which log-probabilities have a gradient in the loss of a token: those of all tokens of the
    sequence (sequence), or the token's own only (token). The value of the loss is the same in both forms.
    """

    clip_low: float = Field(3e-4, ge=0, le=1)
    clip_high: float = Field(4e-4, ge=0)
    form: Literal["sequence", "token"] = "sequence"


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """The loss [T] of each token. All tokens that share a ratio must be in one micro-batch."""
    chosen = Surrogate(
        granularity=config.granularity,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        straight_through=config.form == "token",
    )
    return surrogate(inputs, chosen)
