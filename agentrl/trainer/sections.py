"""The sections of a recipe that say how a learner learns; no torch is imported here."""

from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from agentrl.config import Entry
from agentrl.loss import Aggregation, Loss, SequenceUnit


class CriticConfig(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Section [critic] of a recipe.

    Attributes:
        model: none; `head`, one linear layer on the policy's trunk; `own`, a model of its own that starts as a copy of
            the policy (or is read from `path`).
        path: folder or hub name of the own model; its vocabulary must be the policy's.
        at: where values are read: `turn` or `token`.
        high: a second head, whose value becomes `value_high` (HiPER's upper level).
        trunk_coef: of a head's loss in the trunk's gradient, taken in the policy's own optimiser steps; 0 leaves the
            trunk to the policy.
        lr: learning rate (AdamW) of the head or the own model; turn-PPO's is ten times the actor's.
        weight_decay, grad_clip: of the critic's optimiser.
        clip: how far a value may move from the one it had before the update before its loss stops falling; None for
            the plain square. Steps on several paths are never clipped.
        epochs, minibatches: passes over the batch, optimiser steps a pass.
        mean: `episode`, turns averaged in their episode, then episodes, so that long ones do not dominate; `value`,
            all values alike.
        warmup: first iterations in which the critic alone learns.
        cut_value: what a truncated episode goes on in if it has no next observation, because `limits.cut_turn=end` or
            `limits.calls` ended it with a turn that was not carried out: `before`, the value before that turn, whose
            state is still the environment's; or `zero`.
    """

    model: Literal["none", "head", "own"] = "none"
    path: str | None = None
    at: Literal["turn", "token"] = "turn"
    high: bool = False
    trunk_coef: float = Field(0.0, ge=0)
    lr: float = Field(1e-5, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    grad_clip: float = Field(1.0, ge=0)
    clip: float | None = Field(0.2, gt=0)
    epochs: int = Field(1, ge=1)
    minibatches: int = Field(1, ge=1)
    mean: Literal["episode", "value"] = "episode"
    warmup: int = Field(0, ge=0)
    cut_value: Literal["before", "zero"] = "before"

    @model_validator(mode="after")
    def _path_is_used(self) -> "CriticConfig":
        if self.path is not None and self.model != "own":
            raise ValueError(f"path is for model=own, this critic is {self.model!r}: drop one of them")
        if self.trunk_coef and self.model != "head":
            raise ValueError(f"trunk_coef is for model=head, this critic is {self.model!r}: drop one of them")
        return self


class OptimConfig(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """The optimiser. All lengths are in updates (calls of `update` or `clone`), not in optimiser steps.

    Attributes:
        name: adamw; or muon, which takes the matrices between embedding and head and leaves the rest to
            AdamW.
        lr: of AdamW.
        muon_lr: of Muon.
        weight_decay: of tensors with two or more dimensions.
        betas: of AdamW.
        warmup: updates over which the rate rises linearly.
        schedule: constant, or cosine from the end of the warm-up to 0 at the last update or, if that comes first,
            where the run's budget (run.tokens, run.calls) is spent.
        grad_clip: largest norm of all gradients together; 0 for no limit.
    """

    name: Literal["adamw", "muon"] = "adamw"
    lr: float = Field(1e-6, ge=0)
    muon_lr: float = Field(0.01, ge=0)
    weight_decay: float = Field(0.01, ge=0)
    betas: tuple[float, float] = (0.9, 0.999)
    warmup: int = Field(0, ge=0)
    schedule: Literal["constant", "cosine"] = "constant"
    grad_clip: float = Field(1.0, ge=0)


KlForm = Literal["k1", "abs", "k2", "k3"]


class UpdateConfig(BaseModel, frozen=True, extra="forbid"):
    """How credit becomes new weights.

    Attributes:
        kl_coef: weight of the KL term against the reference model.
        kl_form: k1 = pi - ref; abs = |k1|; k2 = k1^2 / 2; k3 = exp(-k1) + k1 - 1, clamped to +-10 (all
            log-probs).
        kl_in: the loss, or each step's reward before credit (`agentrl.trainer.kl_reward`).
        entropy_coef: weight of the entropy bonus.
        aggregation, sequence, norm_tokens: see `agentrl.trainer.path_weights.aggregation_weights`. Left out,
            aggregation and sequence are those that the loss was published with (`AGGREGATION`, `SEQUENCE` of its file).
        epochs: passes over the batch.
        minibatches: optimiser steps a pass, at most as many as there are units.
        unit: what is never divided between mini-batches: a task's group, or a rollout with all that shares
            its steps.
        max_tokens: packed tokens of a micro-batch; at least the longest path.
        train_invalid: also train steps whose answer was not in the right format.
        train_unfinished: also train rollouts that a limit ended (SUPO does not; they stay in the statistics).
        old_logprob: recomputed by the trainer before the update, or the engine's.
        importance_cap: cap of the correction for tokens sampled under other log-probs than the trainer's; 0
            for none.
        mismatch_tolerance: nats; below it engine and trainer count as equal and nothing is corrected.
        regularizers: entries of `algorithms/regularizer/` with their options, terms beside the policy loss.
    """

    kl_coef: float = Field(0.0, ge=0)
    kl_form: KlForm = "k3"
    kl_in: Literal["loss", "reward"] = "loss"
    entropy_coef: float = 0.0
    aggregation: Aggregation | None = None
    sequence: SequenceUnit | None = None
    norm_tokens: int | None = Field(None, ge=1)
    epochs: int = Field(1, ge=1)
    minibatches: int = Field(1, ge=1)
    unit: Literal["group", "rollout"] = "group"
    max_tokens: int = Field(16384, ge=1)
    train_invalid: bool = True
    train_unfinished: bool = True
    old_logprob: Literal["trainer", "engine"] = "trainer"
    importance_cap: float = Field(2.0, ge=0)
    mismatch_tolerance: float = Field(1e-3, ge=0)
    regularizers: tuple[dict[str, Any], ...] = ()

    @property
    def kl_loss_coef(self) -> float:
        """Weight of the KL term in the loss."""
        return self.kl_coef if self.kl_in == "loss" else 0.0

    def resolved(self, loss: Entry[Loss]) -> "UpdateConfig":
        """With the loss's own aggregation and sequence where none is given."""
        own = {"aggregation": loss.hooks.aggregation, "sequence": loss.hooks.sequence_of(loss.config)}
        return self.model_copy(update={name: value for name, value in own.items() if getattr(self, name) is None})
