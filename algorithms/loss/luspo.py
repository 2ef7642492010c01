"""GSPO times the length of the response.

Formula: `l = T max(-A s, -A clip(s, 1 - clip_low, 1 + clip_high))` for a sequence of T tokens, where s is `exp(mean
over the sequence of log u)`, as in `gspo`.

Source: LUSPO (length-unbiased sequence policy optimisation), arXiv:2602.05261. The paper multiplies the GSPO loss of
each sequence by the sequence's length. Here every token carries the GSPO loss of its sequence, and "seq-mean-token-sum"
(`AGGREGATION`) sums over the tokens, which multiplies by their number. With update.aggregation = "seq-mean-token-mean"
the loss is that of GSPO. The default clip range is that of GSPO.
"""

from agentrl.algorithms.loss import gspo
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "seq-mean-token-sum"


class Config(gspo.Config, frozen=True):
    """GSPO's options."""


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """The loss [T] of each token. All tokens that share a ratio must be in one micro-batch."""
    return gspo.loss(inputs, config)
