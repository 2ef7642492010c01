"""Clipped loss on the geometric-mean ratio of a whole response.

Formula: `l = max(-A s, -A clip(s, 1 - clip_low, 1 + clip_high))`, `s = exp(mean over the sequence of log u)`.

Source: GSPO, arXiv:2507.18071, Eq. 5-7 (sequence form) and GSPO-token: s = exp(mean of token log-ratios),
clipped in [1 - 3e-4, 1 + 4e-4]. The token form (`form=token`, and verl-agent's) has the same value and lets
each token keep its own gradient; with one advantage per sequence, both have the same gradient. Eq. 5 is a mean over
sequences of one number each, which is "seq-mean-token-mean" over the same sequence. A sequence is a step's response
(`sequence=step`, as in verl-agent, where each step is a row) or an episode.
"""

from typing import Literal

from pydantic import Field

from agentrl.algorithms.loss._surrogate import Sequences, Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "seq-mean-token-mean"


class Config(Sequences, frozen=True):
    """clip_low, clip_high: how far the ratio of a sequence may fall below, or rise above, 1. form: sequence
    or token (straight-through).
    """

    clip_low: float = Field(3e-4, ge=0, le=1)
    clip_high: float = Field(4e-4, ge=0)
    form: Literal["sequence", "token"] = "sequence"


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """All tokens of what shares a ratio must be in one micro-batch."""
    chosen = Surrogate(
        granularity=config.granularity,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        straight_through=config.form == "token",
    )
    return surrogate(inputs, chosen)
