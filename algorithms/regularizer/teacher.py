"""Distillation on the policy's own samples: the reverse KL to a teacher, token by token, beside the policy loss.

Formula: `coef * x^2 / 2` (k2), `coef * (exp(-x) + x - 1)` (k3) or `coef * r x_old` (ratio) per token, with
x = log pi - log pi_teacher.

The teacher of `guide.name = "teacher"` reads what the policy sampled, and computes the log-prob of each token: the
column `teacher_logprob`. For a token that pi sampled, the term is coef times one of

    k2      x^2 / 2: its gradient is x grad log pi, whose mean is the gradient of KL(pi || teacher) at that token
    k3      exp(-x) + x - 1: a KL estimate of low variance whose mean gradient is that of KL(teacher || pi)
    ratio   r x_old: r = pi / pi_old, and x_old = log pi_old - log pi_teacher a constant; the policy gradient of the
            reward -x_old, whose gradient at pi = pi_old is that of k2

Source: KDRL, arXiv:2506.02208, adds the reverse KL to a teacher to GRPO. It compares k2 and k3 (option `form`), lets
the coefficient fall (`end`), and distils only answers without a reward (`only`). The form `ratio` is from Thinking
Machines, "On-Policy Distillation" (2025). The formulas were written from memory and not compared with these sources;
the tests check the gradients above by exact sums. As in both sources, the term of a token depends on this token alone,
not on later tokens.
"""

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field

from agentrl.loss import LossInputs, LossOutput, unrounded
from agentrl.trainer import Moment

if TYPE_CHECKING:
    from torch import Tensor

PAPER = "KDRL, arXiv:2506.02208; Thinking Machines, On-Policy Distillation"
READS = ("teacher_logprob", "succeeded")
LIMIT = 20.0  # nats; k3 clips x to [-LIMIT, LIMIT]


class Config(BaseModel, frozen=True, extra="forbid"):
    """See the module.

    Attributes:
        coef: weight of the term, at the first update.
        end: weight of the term at the last update; from `coef` to `end` the weight changes linearly with the updates.
            None: the weight is always `coef`.
        form: which of the three formulas is the term: k2, k3 or ratio.
        only: which chains are distilled: every chain (all), or the chains that failed (failed).
    """

    coef: float = Field(0.1, gt=0)
    end: float | None = Field(None, ge=0)
    form: Literal["k2", "k3", "ratio"] = "k2"
    only: Literal["all", "failed"] = "all"


class Teacher:
    """See the module. It has no state: the weight follows from the number of the update."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def begin(self, moment: Moment) -> "Term":
        """The term of an update."""
        first, last = self.config.coef, self.config.end
        done = min(1.0, moment.update / max(1, moment.updates - 1))
        return Term(self.config, first if last is None else first + (last - first) * done)


class Term:
    """The term in one update, with the weight of that update."""

    def __init__(self, config: Config, coef: float) -> None:
        self.config, self.coef = config, coef

    def __call__(self, inputs: LossInputs) -> LossOutput:
        """The term [T]; logged: `teacher_kl`, x where a token is distilled and 0 elsewhere, and `teacher_share`, the
        share of tokens that are distilled."""
        teacher = inputs.columns["teacher_logprob"]  # [T] NaN where there is no teacher
        taught = ~teacher.isnan()  # [T]
        if self.config.only == "failed":
            taught = taught & (inputs.columns["succeeded"] == 0)
        filled = teacher.nan_to_num(nan=0.0)  # [T]
        apart = divergence(inputs.logprob, inputs.old_logprob, filled, self.config.form) * taught  # [T]
        x = ((inputs.logprob - filled) * taught).detach()  # [T]
        return LossOutput(self.coef * inputs.weight * apart, {"teacher_kl": x, "teacher_share": taught.to(x)})

    def finish(self) -> None:
        """Does nothing: this term has no history."""


def divergence(logprob: "Tensor", old_logprob: "Tensor", teacher: "Tensor", form: str) -> "Tensor":
    """[T] the term of each token at weight 1; see the module."""
    x = unrounded(logprob - teacher)  # [T]
    if form == "k2":
        return 0.5 * x**2
    if form == "k3":
        near = x.clamp(-LIMIT, LIMIT)  # [T] without the limit, exp could overflow
        return (-near).exp() + near - 1
    return (logprob - old_logprob).exp() * unrounded(old_logprob - teacher).detach()


def make(config: Config) -> Teacher:
    """See `agentrl.trainer.regularizer`."""
    return Teacher(config)
