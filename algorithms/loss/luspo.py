"""GSPO times the length of the response.

Source: LUSPO (length-unbiased sequence policy optimisation), arXiv:2602.05261: each sequence's GSPO loss is
multiplied by its length, which is GSPO under update.aggregation = "seq-mean-token-sum"; this file is GSPO's
loss in that reading and carries the name. Clip range: GSPO's.
"""

from typing import Literal

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput


class Config(BaseModel, frozen=True, extra="forbid"):
    """sequence: what shares a ratio."""

    clip_low: float = Field(3e-4, ge=0, le=1)
    clip_high: float = Field(4e-4, ge=0)
    sequence: Literal["step", "episode"] = "step"

    @property
    def whole_episodes(self) -> bool:
        """Does a ratio span an episode, so that its tokens are needed at once?"""
        return self.sequence == "episode"


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """All tokens of what shares a ratio must be in one micro-batch."""
    chosen = Surrogate(
        granularity="turn_mean" if config.sequence == "step" else "sequence_mean",
        clip_low=config.clip_low,
        clip_high=config.clip_high,
    )
    return surrogate(inputs, chosen)
