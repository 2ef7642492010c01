"""What a policy loss is. A catalogue file in `algorithms/loss/` offers a frozen pydantic `Config` and

    def loss(inputs: LossInputs, config: Config) -> LossOutput

It returns one number per token; `agentrl.trainer.update` multiplies by the aggregation weight, adds KL and entropy
terms, and sums. How tokens become one number is a part of a published loss, so that a file states it: `AGGREGATION`
and `SEQUENCE` are the defaults of `update.aggregation` and `update.sequence`.

All tokens of a step are always in one call. A `Config` with a true `whole_episodes` gets all tokens of an episode in
one call too; on a branched graph, those of each root-to-leaf path as an episode of its own
(`agentrl.trainer.path_weights`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

if TYPE_CHECKING:  # a recipe names its loss, and checking a recipe needs no torch
    from torch import Tensor

from agentrl.catalogue import CatalogueFile, hook

Aggregation = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
SequenceUnit = Literal["step", "episode"]  # what "seq" means there


@dataclass(frozen=True, kw_only=True, eq=False)
class LossInputs:
    """Per trained token, all [T] on one device. T counts sampled tokens of assigned steps in this micro-batch.

    Attributes:
        logprob: log pi_new of the token under its allowed set and temperature; carries the gradient.
        old_logprob: the trainer's log-probability before the first update.
        ref_logprob: under the reference model, or None.
        entropy: nats, of the distribution the token was drawn from, or None if nobody asked.
        positive, negative: the step's P and M (see `agentrl.credit.method.Credit`), both >= 0.
        weight: multiplicity of terms without an advantage.
        step: int64, the step (or copy of a step) of each token.
        path: int64, the episode (or root-to-leaf path) of each token.
    """

    logprob: "Tensor"
    old_logprob: "Tensor"
    ref_logprob: "Tensor | None"
    entropy: "Tensor | None"
    positive: "Tensor"
    negative: "Tensor"
    weight: "Tensor"
    step: "Tensor"
    path: "Tensor"


class LossOutput(NamedTuple):
    """`per_token` [T], to be minimised; `metrics` are per-token arrays whose weighted mean is logged."""

    per_token: "Tensor"
    metrics: Mapping[str, "Tensor"]


@dataclass(frozen=True, kw_only=True)
class Loss(CatalogueFile):
    """The file of a policy loss.

    Attributes:
        loss: see the module.
        aggregation: how the tokens of a mini-batch are summed (`agentrl.trainer.path_weights.aggregation_weights`), as
            the loss was published. Where the source states none, the file says so.
        sequence: what a sequence is in that aggregation; an option `sequence` of the loss wins.
        zero_without_credit: it is 0 where positive and negative are 0, so that such steps need no forward pass.
    """

    KIND: ClassVar[str] = "loss"

    loss: Callable[[LossInputs, Any], LossOutput] = hook(help="(inputs, config) -> LossOutput")
    aggregation: Aggregation = hook("AGGREGATION", "default of update.aggregation", "token-mean")
    sequence: SequenceUnit = hook("SEQUENCE", "default of update.sequence: step or episode", "step")
    zero_without_credit: bool = hook("ZERO_WITHOUT_CREDIT", "0 where a step has no credit: no forward pass", False)

    def sequence_of(self, config: Any) -> SequenceUnit:
        """The sequence of the aggregation under these options of the loss."""
        chosen: SequenceUnit = getattr(config, "sequence", self.sequence)
        return chosen
