"""The routine behind all policy losses: a probability ratio, which a token, a step, a segment or an episode shares, and
a gate, which turns the ratio into a loss.

The loss of a token is P * l(u, +1) + M * l(u, -1). Here u is the ratio of the token, P, M >= 0 are the positive and the
negative advantage mass of its step, and l(u, s) is the loss at advantage s. On a chain at least one of P and M is 0,
and this is the usual loss at A = P - M. `agentrl.trainer.path_weights.aggregation_weights` does the aggregation (the
mean over all tokens, or the mean over sequences of token means, of token sums, or of token sums divided by a constant).
The denominator of the aggregation is counted over the whole mini-batch, so the losses of micro-batches can be added.
The file of each loss names its aggregation.

Letters: T tokens, K groups of tokens (steps, segments or episodes).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import BaseModel, Field

from agentrl.loss import LossInputs, LossOutput

if TYPE_CHECKING:  # a recipe names its loss, and checking a recipe needs no torch
    from torch import Tensor

Granularity = Literal["token", "turn_mean", "turn_product", "segment", "sequence_mean", "sequence_product"]
Gate = Literal["clip", "sigmoid", "weight_clip", "quadratic", "smooth", "geometric", "log_prob", "none"]

CLIPS = ("clip", "weight_clip", "geometric")  # gates that limit a ratio
LIMIT = 20.0  # largest log-ratio: exp(20) is far beyond any gate, and its square is still a float32


class Surrogate(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """The choices that the `Config` of a loss file makes.

    Attributes:
        granularity: which tokens share one ratio. token: each token has its own ratio. turn_mean and turn_product: the
            tokens of a step share the geometric mean or the product of their token ratios. segment: every
            `segment_tokens` tokens of a step share their geometric mean. sequence_mean and sequence_product: the
            tokens of an episode share the geometric mean or the product.
        gate: the loss l(u, s) at the advantage s = +1 or -1. clip: the larger of -s u and -s clip(u). sigmoid:
            -s 4/tau sigmoid(tau (u - 1)). weight_clip: -s clip(u) log pi, with clip(u) as a constant factor.
            quadratic: -s u + (u - 1)^2 / (2 bound), where bound is `clip_high` at s = +1 and the lower bound at s = -1.
            smooth: -s ((1 - a) u + a) with a = `smoothing`. geometric: -s u, where log u is the mean of the clipped
            log-ratios of the tokens that share a ratio. log_prob: -s log pi. none: -s u.
        clip_low, clip_high: clip(u) is u limited to [1 - clip_low, 1 + clip_high]. For `geometric`, a token's log-ratio
            is at most clip_high at s = +1 and at least -clip_low at s = -1.
        negative_low, negative_high: these bounds at negative advantage; None takes clip_low or clip_high.
        dual_clip: with the gate `clip`, the largest value of l(u, -1). It must be greater than 1; None: no such bound.
        straight_through: the logarithm of a shared ratio keeps its value, and in the loss of a token its gradient is
            that of the token's own log-probability.
        spread: divide the loss of each token by the number of tokens in its group, so that the losses of a group's
            tokens sum to the group's loss.
    """

    granularity: Granularity = "token"
    gate: Gate = "clip"
    clip_low: float = Field(0.2, ge=0)
    clip_high: float = Field(0.2, ge=0)
    negative_low: float | None = Field(None, ge=0)
    negative_high: float | None = Field(None, ge=0)
    dual_clip: float | None = Field(None, gt=1)
    tau_positive: float = Field(1.0, gt=0)
    tau_negative: float = Field(1.05, gt=0)
    smoothing: float = Field(0.1, ge=0, le=1)
    segment_tokens: int = Field(16, ge=1)
    straight_through: bool = False
    spread: bool = False


class Sequences(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Options of losses with one ratio per sequence.

    sequence: the tokens that share a ratio: those of a step's response (step), or of all responses of an episode
    (episode).
    """

    sequence: Literal["step", "episode"] = "step"

    @property
    def whole_episodes(self) -> bool:
        """Do the tokens of an episode share a ratio, so that all of them must be in one call of the loss?"""
        return self.sequence == "episode"

    @property
    def granularity(self) -> Granularity:
        """The granularity whose ratio is the geometric mean over a sequence."""
        return "turn_mean" if self.sequence == "step" else "sequence_mean"


class Groups(NamedTuple):
    """Which tokens share a ratio: `key` [T] int64 is the number of a token's group, `size` [T] float the number of
    tokens in this group."""

    key: "Tensor"
    size: "Tensor"


def surrogate(inputs: LossInputs, config: Surrogate) -> LossOutput:
    """P * l(u, +1) + M * l(u, -1) per token, with metrics."""
    groups = grouping(inputs, config)
    ratio = log_ratio(inputs, config, groups).clamp(-LIMIT, LIMIT).exp()  # [T]
    gain, pain = (
        gated(inputs, config, groups, ratio, +1),
        gated(inputs, config, groups, ratio, -1),
    )  # [T] each
    per_token = inputs.positive * gain + inputs.negative * pain  # [T]
    if config.spread:
        per_token = per_token / groups.size
    return LossOutput(per_token, metrics(inputs, config, ratio))


def grouping(inputs: LossInputs, config: Surrogate) -> Groups:
    """The groups of the configured granularity. All tokens of a group must be in one micro-batch."""
    import torch

    if config.granularity == "token":
        return Groups(torch.arange(len(inputs.step), device=inputs.step.device), torch.ones_like(inputs.logprob))
    key = torch.unique(inputs.path if "sequence" in config.granularity else inputs.step, return_inverse=True)[1]
    if config.granularity == "segment":
        order = torch.argsort(key, stable=True)  # [T]
        size = torch.bincount(key)  # [K]
        start = torch.cumsum(size, 0) - size  # [K]
        place = torch.empty_like(key)  # [T] index of each token inside its step
        place[order] = torch.arange(len(key), device=key.device) - start[key[order]]
        key = torch.unique(key * (len(key) + 1) + place // config.segment_tokens, return_inverse=True)[1]
    return Groups(key, torch.bincount(key)[key].to(inputs.logprob.dtype))


def total(x: "Tensor", groups: Groups) -> "Tensor":
    """Sum of x over each token's group, on each of its tokens: [T]."""
    sums = x.new_zeros(int(groups.key.max()) + 1 if len(x) else 0)  # [K]
    return sums.index_add(0, groups.key, x)[groups.key]


def log_ratio(inputs: LossInputs, config: Surrogate, groups: Groups) -> "Tensor":
    """[T] log of each token's ratio, before any clip."""
    own = inputs.logprob - inputs.old_logprob  # [T]
    if config.granularity == "token":
        return own
    shared = total(own, groups)  # [T]
    if not config.granularity.endswith("product"):
        shared = shared / groups.size
    return shared.detach() + inputs.logprob - inputs.logprob.detach() if config.straight_through else shared


def bounds(config: Surrogate, sign: int) -> tuple[float, float]:
    """(low, high) distances from 1 at this sign of the advantage."""
    if sign > 0:
        return config.clip_low, config.clip_high
    low, high = config.negative_low, config.negative_high
    return config.clip_low if low is None else low, config.clip_high if high is None else high


def gated(inputs: LossInputs, config: Surrogate, groups: Groups, ratio: "Tensor", sign: int) -> "Tensor":
    """[T] l(u, sign): the loss at advantage `sign`, before P and M."""
    low, high = bounds(config, sign)
    if config.gate == "clip":
        clipped = ratio.clamp(1 - low, 1 + high)
        if sign > 0:
            return -ratio.minimum(clipped)
        worst = ratio.maximum(clipped)
        return worst if config.dual_clip is None else worst.clamp(max=config.dual_clip)
    if config.gate == "sigmoid":
        tau = config.tau_positive if sign > 0 else config.tau_negative
        return -sign * 4 / tau * (tau * (ratio - 1)).sigmoid()
    if config.gate == "weight_clip":
        return -sign * ratio.detach().clamp(1 - low, 1 + high) * inputs.logprob
    if config.gate == "quadratic":
        return -sign * ratio + (ratio - 1) ** 2 / (2 * (high if sign > 0 else low))
    if config.gate == "smooth":
        return -sign * ((1 - config.smoothing) * ratio + config.smoothing)
    if config.gate == "geometric":
        own = inputs.logprob - inputs.old_logprob  # [T]
        kept = own.clamp(max=high) if sign > 0 else own.clamp(min=-low)
        return -sign * (total(kept, groups) / groups.size).clamp(-LIMIT, LIMIT).exp()
    return -sign * (inputs.logprob if config.gate == "log_prob" else ratio)


def metrics(inputs: LossInputs, config: Surrogate, ratio: "Tensor") -> Mapping[str, "Tensor"]:
    """The metrics, [T] each, without gradient.

    `clip_fraction` is 1 where the ratio is above its upper bound at positive advantage, or below its lower bound at
    negative advantage, else 0. For `geometric` this is said of the token's own ratio. Under gates that limit no ratio
    it is 0. `approx_kl` is the k3 estimate of KL(old || new), in nats.
    """
    own = (inputs.logprob - inputs.old_logprob).detach()  # [T]
    high, low = bounds(config, +1)[1], bounds(config, -1)[0]
    over, under = (own > high, own < -low) if config.gate == "geometric" else (ratio > 1 + high, ratio < 1 - low)
    clipped = (over & (inputs.positive > 0)) | (under & (inputs.negative > 0))  # [T]
    return {
        "clip_fraction": (clipped & (config.gate in CLIPS)).to(ratio.dtype),
        "ratio": ratio.detach(),
        "approx_kl": own.clamp(-LIMIT, LIMIT).exp() - 1 - own,
    }
