"""Imitation of the demonstrations in a group, beside the policy gradient of the chains that the policy played.

Source: `shape = "bounded"` is the policy shaping of LUFFY, arXiv:2504.14945, section 3.2: -f(pi) with f(x) = x / (x +
gamma) and gamma = 0.1. The gradient of f(pi) in log pi, gamma pi / (pi + gamma)^2, is largest at tokens of probability
gamma. This was checked against the released code (mix_core_alg.py, `p_div_p_0.1`), which takes the probability of the
demonstrator as 1, as this file does. `shape = "log"` is cross-entropy, -log pi, beside the policy loss; UFT
(arXiv:2505.16984) uses it on the part of a solution that it gives to the policy as a hint.

Formula: -coef log pi(y_t), or -coef pi(y_t) / (pi(y_t) + gamma), on the tokens y_t of demonstrations, times 1 or the
advantage A.

`by = "advantage"` multiplies a token's term by the advantage of the token's step, as in LUFFY's mixed-policy objective;
`by = "one"` multiplies it by 1.

The tokens of demonstrations count in the denominators of `update.aggregation`, as in LUFFY, where Z of Eq. 4 sums the
lengths of demonstrations and of sampled answers.
"""

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field

from agentrl.loss import LossInputs, LossOutput
from agentrl.trainer import Moment

if TYPE_CHECKING:
    from torch import Tensor

PAPER = "LUFFY, arXiv:2504.14945; UFT, arXiv:2505.16984"
READS = ("demonstrated", "advantage")
DEMONSTRATIONS = True


class Config(BaseModel, frozen=True, extra="forbid"):
    """See the module.

    Attributes:
        coef: weight of the term.
        shape: `log` is -log pi; `bounded` is -pi / (pi + smoothing), where smoothing is the paper's gamma.
        smoothing: probability at which the gradient of `bounded` is largest.
        by: what multiplies the term of a token: 1 (one), or the advantage of the token's step (advantage).
    """

    coef: float = Field(1.0, gt=0)
    shape: Literal["log", "bounded"] = "log"
    smoothing: float = Field(0.1, gt=0)
    by: Literal["one", "advantage"] = "one"


class Imitation:
    """See the module. It has no state."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def begin(self, moment: Moment) -> "Imitation":
        """The term of an update; it is the same in every update."""
        return self

    def __call__(self, inputs: LossInputs) -> LossOutput:
        """The term [T], logged as `imitation`; `imitation_share` is the share of tokens that are imitated."""
        shown = inputs.columns["demonstrated"]  # [T]
        often = shown * inputs.columns["advantage"] if self.config.by == "advantage" else shown  # [T]
        term = -self.config.coef * often * shaped(inputs.logprob, self.config)  # [T]
        return LossOutput(term, {"imitation": term.detach(), "imitation_share": (shown > 0).to(shown)})

    def finish(self) -> None:
        """Does nothing: this term has no history."""


def shaped(logprob: "Tensor", config: Config) -> "Tensor":
    """[T] the quantity that imitation raises: log pi, or pi / (pi + gamma)."""
    if config.shape == "log":
        return logprob
    probability = logprob.exp()  # [T]
    return probability / (probability + config.smoothing)


def make(config: Config) -> Imitation:
    """See `agentrl.trainer.regularizer`."""
    return Imitation(config)
