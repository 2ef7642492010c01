"""GSPO times the length of the response.

Source: LUSPO (length-unbiased sequence policy optimisation), arXiv:2602.05261: each sequence's GSPO loss is
multiplied by its length, which is GSPO under update.aggregation = "seq-mean-token-sum"; this file is GSPO's
loss in that reading and carries the name. Clip range: GSPO's.
"""

from agentrl.algorithms.loss import gspo
from agentrl.loss import LossInputs, LossOutput


class Config(gspo.Config, frozen=True):
    """GSPO's options."""


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """All tokens of what shares a ratio must be in one micro-batch."""
    return gspo.loss(inputs, config)
