"""The sections [critic], [optim], [learner] and [update] of a recipe; this module imports no torch."""

from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from agentrl.config import Entry
from agentrl.loss import Aggregation, Loss, SequenceUnit
from agentrl.secret import address_fault

BILLED = ("price_prefill", "price_sample", "price_train")  # without one of these prices, dollars are not computed


class CriticConfig(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Section [critic]: the critic, which estimates a value per turn or per token for credit methods that need values.

    Attributes:
        model: `none`: there is no critic. `head`: one linear layer on the policy's trunk (the model without its output
            head). `own`: a separate model, which starts as a copy of the policy or is read from `path`.
        path: folder or hub name of the separate model of critic.model=own. The model must have the policy's vocabulary.
        at: `turn` reads one value per turn, `token` one value per sampled token.
        two_levels: add a second head, whose value becomes the column `value_high` (HiPER's upper level).
        trunk_coef: for critic.model=head, the factor of the critic's loss in the gradient of the trunk. The policy's
            optimiser applies this gradient. With 0, the policy loss alone trains the trunk.
        lr: learning rate (AdamW) of the head and of the separate model, if there is one. The paper of turn-PPO takes
            ten times the policy's rate.
        weight_decay: weight decay of the critic's optimiser.
        grad_clip: largest gradient norm of the critic; 0 for no limit.
        clip: as in PPO, the loss does not become lower if a value moves farther than this number from its value at the
            beginning of the update. None for the plain squared error, which is always used on branched graphs.
        epochs: number of passes over the batch.
        minibatches: number of optimiser steps per pass.
        mean: `episode` averages the loss over the values of an episode, then over the episodes, so that long episodes
            do not dominate; `value` gives all values the same weight. On a branched graph, `episode` does the same as
            `value`.
        warmup: number of first iterations in which only the critic learns.
        cut_value: the value beyond the end of an episode that has no next observation, because `limits.cut_turn=end`
            or `limits.calls` ended it with a turn that was not carried out. `before` takes the value before that turn,
            because the environment is still in the state before the turn; `zero` takes 0.
    """

    model: Literal["none", "head", "own"] = "none"
    path: str | None = None
    at: Literal["turn", "token"] = "turn"
    two_levels: bool = False
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
            raise ValueError(f"path needs model='own', and model is {self.model!r}: remove path, or set model=own")
        if self.trunk_coef and self.model != "head":
            raise ValueError(
                f"trunk_coef needs model='head', and model is {self.model!r}: remove trunk_coef, or set model=head"
            )
        return self


class OptimConfig(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Section [optim]: the optimiser. `warmup` and `schedule` count updates (batches of rollouts or demonstrations),
    not optimiser steps.

    Attributes:
        name: `adamw` for all parameters. `muon` for the matrices between embedding and output head (computed in float32
            on a CPU, in bfloat16 on a GPU), with AdamW for the other parameters.
        lr: learning rate of AdamW.
        muon_lr: learning rate of Muon.
        weight_decay: weight decay of tensors with two or more dimensions.
        betas: betas of AdamW.
        warmup: number of updates over which the learning rate rises linearly.
        schedule: `constant`, or `cosine`: after the first `warmup` updates the learning rate falls along a half cosine.
            It reaches 0 at the end of the last update, or when the run's budget (run.tokens, run.actions) is spent, if
            this comes first.
        grad_clip: largest norm of all gradients together; larger gradients are scaled down. 0 for no limit.
    """

    name: Literal["adamw", "muon"] = "adamw"
    lr: float = Field(1e-6, ge=0)
    muon_lr: float = Field(0.01, ge=0)
    weight_decay: float = Field(0.01, ge=0)
    betas: tuple[float, float] = (0.9, 0.999)
    warmup: int = Field(0, ge=0)
    schedule: Literal["constant", "cosine"] = "constant"
    grad_clip: float = Field(1.0, ge=0)


class LocalOptions(BaseModel, frozen=True, extra="forbid"):
    """Which learner computes the updates, and the options of a learner of this run.

    Attributes:
        name: `local`: the learner of this run. `tinker`: a training service, which holds weights and optimiser; the
            engine must be `tinker` too (docs/training-service.md). The options of `ServiceOptions` are for the second.
        processes: number of processes that share each policy. agentrl train starts them on this machine or, with
            cluster.address, on the cluster; under torchrun it is the number that torchrun started.
        checkpointing: do not store the layers' activations, and compute them again in the backward pass. This takes
            less memory and more time.
        offload: keep trained weights, gradients and optimiser state in the CPU's memory, where the optimiser then runs.
        keep_dropout: keep the dropout of the model's configuration and of model.lora.dropout in updates and in the
            warm-up. The rollouts have none, so the ratio of the first optimiser step then differs from 1. A model that
            drops attention weights is then packed as separate paths. The critic has no dropout in any case.
    """

    name: Literal["local", "tinker"] = "local"
    processes: int = Field(1, ge=1, le=4096)
    checkpointing: bool = False
    offload: bool = False
    keep_dropout: bool = False


class ServiceOptions(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """The options of [learner] for a training service, which speaks Tinker's protocol; they need learner.name=tinker.

    Attributes:
        url: address of the service, such as http://127.0.0.1:8000. Default: the environment variable TINKER_BASE_URL
            or, without it, the hosted service. The API key comes from the environment alone (TINKER_API_KEY).
        model: name of the base model at the service. Default: `model.path`.
        rank: rank of the adapters that the service trains.
        seed: seed of the new adapters. Default: run.seed.
        train_attn, train_mlp, train_unembed: train the adapters of the attention layers, of the MLP layers, and of the
            output head. A service may ignore them.
        sums: how the service adds up the losses of tokens. `tokens`: it sums over tokens and sequences, as the protocol
            says. `sequences`: it takes the mean over sequences of each sequence's mean (SkyRL's JAX back end). `auto`
            finds out before the first update.
        keep_days: days after which the service may delete a checkpoint; 0 for never.
        timeout_s: seconds to wait for one answer of the service.
        price_prefill: dollars per million tokens of prompts. Without this price, `price_sample` and `price_train`,
            estimates count tokens and no dollars.
        price_cached: dollars per million tokens of prompts that the service has in its cache. Default: `price_prefill`.
        price_sample: dollars per million sampled tokens.
        price_train: dollars per million tokens that training passes read, forward passes alone included.
        budget: training ends after the iteration in which the dollars spent so far, by these prices, reach this number.
            None for no limit.
    """

    url: str = ""
    model: str = ""
    rank: int = Field(32, ge=1, le=4096)
    seed: int | None = Field(None, ge=0, lt=2**31)
    train_attn: bool = True
    train_mlp: bool = True
    train_unembed: bool = True
    sums: Literal["auto", "tokens", "sequences"] = "auto"
    keep_days: float = Field(30.0, ge=0)
    timeout_s: float = Field(3600.0, gt=0)
    price_prefill: float | None = Field(None, ge=0)
    price_cached: float | None = Field(None, ge=0)
    price_sample: float | None = Field(None, ge=0)
    price_train: float | None = Field(None, ge=0)
    budget: float | None = Field(None, gt=0)

    @field_validator("url")
    @classmethod
    def _holds_no_key(cls, url: str) -> str:
        fault = address_fault(url, "TINKER_API_KEY") if url else ""
        if fault:
            raise ValueError(f"this {fault}")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _budget_has_prices(self) -> "ServiceOptions":
        lacking = [name for name in BILLED if getattr(self, name) is None]
        if self.budget is not None and lacking:
            raise ValueError(
                f"budget = {self.budget:g} counts dollars, and {' and '.join(lacking)} "
                f"{'is' if len(lacking) == 1 else 'are'} not set: set {', '.join(BILLED)} in dollars per million "
                "tokens (0 for what costs nothing), or leave budget out"
            )
        return self

    @model_validator(mode="after")
    def _something_is_trained(self) -> "ServiceOptions":
        if not (self.train_attn or self.train_mlp or self.train_unembed):
            raise ValueError("train_attn, train_mlp and train_unembed are all false: set one of them to true")
        return self

    @property
    def priced(self) -> bool:
        """Are there prices for everything that a service bills?"""
        return all(getattr(self, name) is not None for name in BILLED)

    def dollars(self, prefill: float, cached: float, sampled: float, trained: float) -> float:
        """The price of tokens; 0 without prices.

        Args:
            prefill: number of tokens of prompts, those in the service's cache included.
            cached: number of these tokens that the service has in its cache. Without `price_cached` they cost as much
                as the others.
            sampled: number of sampled tokens.
            trained: number of tokens that training passes read.
        """
        if not self.priced:
            return 0.0
        prices = [self.price_prefill, self.price_cached, self.price_sample, self.price_train]
        full, part, sample, train = (price or 0.0 for price in prices)
        part = full if self.price_cached is None else part
        return (full * (prefill - cached) + part * cached + sample * sampled + train * trained) / 1e6


class LearnerConfig(ServiceOptions, LocalOptions, frozen=True, extra="forbid"):
    """Section [learner]: what computes the updates: processes of this run, with their memory and dropout, or a training
    service. A policy, its optimiser and the micro-batches are divided over the processes (FSDP2); each process takes
    one GPU, or a share of the CPU.
    """

    @model_validator(mode="after")
    def _options_are_used(self) -> "LearnerConfig":
        wrong = {*(ServiceOptions if self.name == "local" else LocalOptions).model_fields} - {"name"}
        unused = {name for name in wrong if getattr(self, name) != self.default(name)}
        if unused:
            option, other = min(unused), "tinker" if self.name == "local" else "local"
            raise ValueError(
                f"{option} needs name={other!r}, and name is {self.name!r}: remove {option}, or set name={other}"
            )
        return self

    @classmethod
    def default(cls, name: str) -> Any:
        """The default of an option."""
        return cls.model_fields[name].default

    @property
    def divided(self) -> bool:
        """Is the model divided over processes? With `offload` it is divided even if there is only one process."""
        return self.processes > 1 or self.offload

    @property
    def remote(self) -> bool:
        """Does a training service hold the weights?"""
        return self.name != "local"


KlForm = Literal["k1", "abs", "k2", "k3"]
Importance = Literal["none", "truncate", "mask", "sequence_mask"]


class UpdateConfig(BaseModel, frozen=True, extra="forbid"):
    """Section [update]: the policy update, which changes the weights by the credit of the steps.

    Attributes:
        kl_coef: weight of the KL term against the reference model; 0 for no KL term.
        kl_form: k1 = log pi - log pi_ref; abs = |k1|; k2 = k1^2 / 2; k3 = exp(-k1) + k1 - 1, clamped to +-10. As a term
            of the loss, the mean gradient of abs is that of sum |pi - pi_ref|, of k2 that of KL(pi || pi_ref), and of
            k3 that of KL(pi_ref || pi). That of k1 is 0, so a new run with k1 needs kl_in=reward.
        kl_in: where the KL term goes: into the loss, or into each step's reward before credit
            (`agentrl.trainer.charge_kl`). A credit method that divides by the standard deviation of a group (`std`)
            divides the rewards without the charge, and the episode's charge, less its group's mean, is subtracted from
            the advantage.
        kl_reference: the reference model of the KL term: the policy at the start of RL, after the warm-up (`start`), or
            the model before the warm-up (`initial`; with adapters, the model without them).
        entropy_coef: weight of the entropy bonus.
        aggregation: how the losses of the tokens become one number. `token-mean`: the mean over all tokens. The other
            three first compute one number per sequence, then the mean of these numbers over the sequences; the number
            is the sum over the tokens of the sequence (`seq-mean-token-sum`), the mean over these tokens
            (`seq-mean-token-mean`), or the sum divided by the number of tokens of the
            mini-batch's longest sequence (`seq-mean-token-sum-norm`). Default: the
            aggregation with which the loss was published (`AGGREGATION` in the loss's file).
        sequence: what counts as one sequence in the means of `aggregation` and in importance=sequence_mask: a step or
            an episode. Default: the sequence with which the loss was published (`SEQUENCE` in the loss's file).
        epochs: number of passes over the batch.
        minibatches: number of optimiser steps per pass, at most one per unit.
        unit: the rows that always stay in one mini-batch: those of a group, or those of a rollout and of all rollouts
            that share steps or a tree with it.
        max_tokens: largest number of packed tokens per micro-batch; no path may have more tokens.
        train_invalid: also train steps whose answer was not in the right format.
        train_unfinished: also train rollouts that a limit or a refusal ended, and answers that a token limit cut off.
            If false (as in SUPO), such rollouts are not trained, rollouts whose last answer was cut off included, and
            of other rollouts the answers that were cut off are not trained. All of them still count in the statistics
            of the credit method.
        old_logprob: `trainer` computes the log-probs again before the update; `engine` takes the engine's log-probs.
        importance: the weight of a token, from the ratio of the trainer's probability before the update to the
            probability with which the engine sampled the token. The two differ if the rollouts are older
            (run.staleness) or if engine and trainer compute differently. `none`: the weight is 1. `truncate`:
            min(ratio, importance_high) (TIS). `mask`: the ratio inside [importance_low, importance_high], and 0 outside
            (IcePop). `sequence_mask`: 1 if the geometric mean of the ratios of the token's sequence is inside these
            bounds, else 0. Formulas: `agentrl.trainer.importance`. With old_logprob=engine all weights are 1, and
            `mask` and `sequence_mask` are errors.
        importance_low: smallest ratio of a token that importance=mask keeps, or smallest geometric mean of a sequence
            that importance=sequence_mask keeps; default: 0.5.
        importance_high: largest weight of a token with importance=truncate (default: 2), largest ratio of a token that
            importance=mask keeps (default: 5), or largest geometric mean of a sequence that importance=sequence_mask
            keeps (default: 2).
        mismatch_tolerance: nats; if the log-probs of engine and trainer differ by at most this much on every token, all
            weights of `importance` are 1. Batches with replayed steps, demonstrations, or steps whose prompt was
            changed after sampling are always weighted.
        mismatch_tolerance_half: nats; replaces mismatch_tolerance if the weights are in bfloat16 or float16, because
            rounding alone then changes the log-probs of a pretrained model (SmolLM2-135M in bfloat16: 0.04 nats in the
            mean; see docs/models.md).
        regularizers: entries of `algorithms/regularizer/` with their options; each adds a term to the policy loss.
    """

    kl_coef: float = Field(0.0, ge=0, allow_inf_nan=False)
    kl_form: KlForm = "k3"
    kl_in: Literal["loss", "reward"] = "loss"
    kl_reference: Literal["start", "initial"] = "start"
    entropy_coef: float = Field(0.0, allow_inf_nan=False)
    aggregation: Aggregation | None = None
    sequence: SequenceUnit | None = None
    epochs: int = Field(1, ge=1)
    minibatches: int = Field(1, ge=1)
    unit: Literal["group", "rollout"] = "group"
    max_tokens: int = Field(16384, ge=1)
    train_invalid: bool = True
    train_unfinished: bool = True
    old_logprob: Literal["trainer", "engine"] = "trainer"
    importance: Importance = "truncate"
    importance_low: float | None = Field(None, ge=0)
    importance_high: float | None = Field(None, gt=0)
    mismatch_tolerance: float = Field(1e-3, ge=0)
    mismatch_tolerance_half: float = Field(0.5, ge=0)
    regularizers: tuple[dict[str, Any], ...] = ()

    @model_validator(mode="after")
    def _importance_is_possible(self) -> "UpdateConfig":
        masks = self.importance in ("mask", "sequence_mask")
        if self.importance_low is not None and not masks:
            raise ValueError(
                f"importance_low needs importance=mask or sequence_mask, and importance is {self.importance!r}: remove "
                "importance_low, or set importance=mask"
            )
        if self.importance_high is not None and self.importance == "none":
            raise ValueError(
                "importance_high has no effect with importance='none': remove importance_high, or set importance=mask"
            )
        low, high = self.importance_low or 0.0, self.importance_high
        if high is not None and low > high:
            raise ValueError(f"importance_low is {low:g}, above importance_high = {high:g}: exchange them")
        if masks and self.old_logprob == "engine":
            raise ValueError(
                f"importance={self.importance!r} compares the trainer's log-probs with the engine's, and "
                "with old_logprob='engine' the trainer computes none: set old_logprob='trainer', or remove importance"
            )
        return self

    @property
    def kl_loss_coef(self) -> float:
        """Weight of the KL term in the loss."""
        return self.kl_coef if self.kl_in == "loss" else 0.0

    def tolerance(self, half: bool) -> float:
        """The mismatch tolerance, in nats; `half` is True if the weights are in bfloat16 or float16."""
        return self.mismatch_tolerance_half if half else self.mismatch_tolerance

    def resolved(self, loss: Entry[Loss]) -> "UpdateConfig":
        """A copy in which `aggregation` and `sequence` are the loss's defaults if the recipe does not set them."""
        own = {"aggregation": loss.hooks.aggregation, "sequence": loss.hooks.sequence_of(loss.config)}
        return self.model_copy(update={name: value for name, value in own.items() if getattr(self, name) is None})
