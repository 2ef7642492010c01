"""Guards the likelihood of good answers: on a step of advantage >= 0 whose likelihood fell, the fall is a loss.

Source: LLDS, arXiv:2512.04220 (abstract and recollection; the formula is not checked against the paper's text): only
for an action (the tokens of a step) of advantage >= 0 whose total log-likelihood fell, old - new on the tokens that
fell, 0 elsewhere; coefficient about 0.1.
"""

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from agentrl.loss import LossInputs, LossOutput
from agentrl.trainer import Moment

if TYPE_CHECKING:
    from torch import Tensor

PAPER = "LLDS, arXiv:2512.04220"


class Config(BaseModel, frozen=True, extra="forbid"):
    """coef: weight of the term."""

    coef: float = Field(0.1, gt=0)


class LikelihoodGuard:
    """See the module. It remembers nothing."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def begin(self, moment: Moment) -> "LikelihoodGuard":
        """Every update alike."""
        return self

    def __call__(self, inputs: LossInputs) -> LossOutput:
        """coef * W * fall of each token; logged as `llds`."""
        fell = fall(inputs.logprob, inputs.old_logprob, inputs.positive, inputs.negative, inputs.step)
        return LossOutput(self.config.coef * inputs.weight * fell, {"llds": fell.detach()})

    def finish(self) -> None:
        """Nothing to remember."""


def fall(logprob: "Tensor", old_logprob: "Tensor", positive: "Tensor", negative: "Tensor", step: "Tensor") -> "Tensor":
    """[T] how far each token's likelihood fell, in nats, on actions that should not have lost any."""
    import torch

    # Limit: on a step that several paths share, the sign is that of their pooled advantage.
    fell = torch.relu(old_logprob - logprob)  # [T]
    _, key = torch.unique(step, return_inverse=True)
    change = torch.zeros(int(key.max()) + 1 if len(key) else 0, dtype=logprob.dtype, device=logprob.device)
    change = change.index_add(0, key, (logprob - old_logprob).detach())  # [steps]
    guarded = (change[key] < 0) & (positive - negative >= 0)  # [T]
    return fell * guarded


def make(config: Config) -> LikelihoodGuard:
    """See `agentrl.trainer.regularizer`."""
    return LikelihoodGuard(config)
