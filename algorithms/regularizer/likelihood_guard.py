"""Guards the likelihood of good answers: where a step of advantage >= 0 became less likely, the fall of its tokens'
log-probabilities is added to the loss.

Formula: `coef * W * max(old_logprob - logprob, 0)` per token of an action with `A >= 0` whose likelihood fell, where W
is the weight of the step.

Source: LLDS, arXiv:2512.04220. The abstract of the paper's second version and the released model card say: an action
(the tokens of a step) is regularised if its advantage is >= 0 and its likelihood fell, and only at the tokens whose
probability fell. In the paper's first version the likelihood of the whole trajectory must have fallen. The card calls
the condition on the trajectory "gate R" and the condition on the action "gate A", and reports the best results for gate
A. Two things were not checked against the paper's equations: the penalty of a token, here old_logprob - logprob, and
how the tokens are averaged, here as `update.aggregation` says.
"""

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from agentrl.loss import LossInputs, LossOutput, unrounded
from agentrl.trainer import Moment

if TYPE_CHECKING:
    from torch import Tensor

PAPER = "LLDS, arXiv:2512.04220"
READS = ("advantage",)


class Config(BaseModel, frozen=True, extra="forbid"):
    """coef: weight of the term; the default 0.1 was not checked against the paper."""

    coef: float = Field(0.1, gt=0)


class LikelihoodGuard:
    """See the module. It has no state."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def begin(self, moment: Moment) -> "LikelihoodGuard":
        """The term of an update; it is the same in every update."""
        return self

    def __call__(self, inputs: LossInputs) -> LossOutput:
        """coef * W * fall of each token [T]; the fall is logged as `llds`."""
        fell = fall(inputs.logprob, inputs.old_logprob, inputs.columns["advantage"], inputs.step)
        return LossOutput(self.config.coef * inputs.weight * fell, {"llds": fell.detach()})

    def finish(self) -> None:
        """Does nothing: this term has no history."""


def fall(logprob: "Tensor", old_logprob: "Tensor", advantage: "Tensor", step: "Tensor") -> "Tensor":
    """[T] fall of each token's log-likelihood, in nats; 0 outside actions of advantage >= 0 whose likelihood fell.

    `advantage` [T] is that of the token's action, before any importance weight: an action that the weights leave out of
    the policy loss still has its sign. On a step that several paths share, it is the paths' pooled advantage.
    """
    import torch

    fell = torch.relu(unrounded(old_logprob - logprob))  # [T]
    _, key = torch.unique(step, return_inverse=True)
    change = torch.zeros(int(key.max()) + 1 if len(key) else 0, dtype=logprob.dtype, device=logprob.device)
    change = change.index_add(0, key, unrounded(logprob - old_logprob).detach())  # [steps]
    guarded = (change[key] < 0) & (advantage >= 0)  # [T]
    return fell * guarded


def make(config: Config) -> LikelihoodGuard:
    """See `agentrl.trainer.regularizer`."""
    return LikelihoodGuard(config)
