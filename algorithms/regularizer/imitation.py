"""Imitation of the demonstrations in a group, beside the policy gradient of the chains that the policy played.

Formula: `-coef * log pi` (`shape = log`) or `-coef * pi / (pi + gamma)` (`shape = bounded`) per token of a
demonstration.

Sources. `shape = "log"`: cross-entropy, -log pi, added to the policy loss: the term of SFT + RL in one loss (UFT,
arXiv:2505.16984, section 3.2, imitates the shown part of a solution so). `shape = "bounded"`: policy shaping, LUFFY,
arXiv:2504.14945, section 3.2: -f(pi) with f(x) = x / (x + gamma), gamma = 0.1, whose gradient is largest at tokens of
small probability; checked against the released code (mix_core_alg.py, `p_div_p_0.1`), which takes the probability of
the demonstrator as 1, as here.

`by = "advantage"` multiplies a token's term by the advantage of its step in the group, as in LUFFY's mixed-policy
objective; `by = "one"` imitates every demonstration alike.

The tokens of demonstrations count in the denominators of `update.aggregation`, as in LUFFY (Z of its Eq. 4 sums the
lengths of both kinds).
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
        shape: log: -log pi; bounded: -pi / (pi + gamma).
        gamma: of `bounded`.
        by: one; or the advantage of the demonstration in its group.
    """

    coef: float = Field(1.0, gt=0)
    shape: Literal["log", "bounded"] = "log"
    gamma: float = Field(0.1, gt=0)
    by: Literal["one", "advantage"] = "one"


class Imitation:
    """See the module. It remembers nothing."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def begin(self, moment: Moment) -> "Imitation":
        """Every update alike."""
        return self

    def __call__(self, inputs: LossInputs) -> LossOutput:
        """The term [T]; logged: `imitation`, and the share of tokens that are imitated."""
        shown = inputs.columns["demonstrated"]  # [T]
        often = shown * inputs.columns["advantage"] if self.config.by == "advantage" else shown  # [T]
        term = -self.config.coef * often * shaped(inputs.logprob, self.config)  # [T]
        return LossOutput(term, {"imitation": term.detach(), "imitation_share": (shown > 0).to(shown)})

    def finish(self) -> None:
        """Nothing to remember."""


def shaped(logprob: "Tensor", config: Config) -> "Tensor":
    """[T] what imitation raises: log pi, or pi / (pi + gamma)."""
    if config.shape == "log":
        return logprob
    probability = logprob.exp()  # [T]
    return probability / (probability + config.gamma)


def make(config: Config) -> Imitation:
    """See `agentrl.trainer.regularizer`."""
    return Imitation(config)
