"""GSPO times the length of the response.

Formula: `l = T max(-A s, -A clip(s, 1 - clip_low, 1 + clip_high))`, s as in `gspo`, T tokens in the sequence.

Source: LUSPO (length-unbiased sequence policy optimisation), arXiv:2602.05261: each sequence's GSPO loss is
multiplied by its length, which is GSPO's loss per token under "seq-mean-token-sum" (`AGGREGATION`): the sum over the
tokens of one number is that number times the length. With update.aggregation = "seq-mean-token-mean" it is GSPO. Clip
range: GSPO's.
"""

from agentrl.algorithms.loss import gspo
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "seq-mean-token-sum"


class Config(gspo.Config, frozen=True):
    """GSPO's options."""


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """All tokens of what shares a ratio must be in one micro-batch."""
    return gspo.loss(inputs, config)
