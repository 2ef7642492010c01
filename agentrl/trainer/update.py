"""The policy update and behaviour cloning: packed forward passes, one loss a token, sums over the whole
mini-batch.

The loss of a mini-batch is sum over decisions of a * (P * l(u, +1) + M * l(u, -1) + W * (KL - entropy
bonus)), where a is the aggregation weight over the whole mini-batch (`agentrl.model.pack.aggregation_weights`) and
P, M, W are the step's credit times the row's weight. Micro-batches are summed, so their number changes
nothing but rounding. On a branched graph, ratios and means over whole episodes are taken path by path
(`agentrl.trainer.path_weights`), all of a tree's paths after one forward pass.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, Field
from torch import Tensor

from agentrl.credit.method import Credit, forked
from agentrl.engines.sampling import fold
from agentrl.graph.step_graph import StepGraph
from agentrl.loss import LossInputs, LossOutput
from agentrl.model.logprobs import EntropyMode, TokenStats, token_stats
from agentrl.model.pack import Aggregation, microbatches, pack, token_rows
from agentrl.trainer.entropy_band import EpoConfig, EpoTerm
from agentrl.trainer.learner import Learner
from agentrl.trainer.minibatch import split
from agentrl.trainer.path_weights import Copies, Spread, aggregate, of_paths, of_rows, roots, spread
from agentrl.trainer.regularizers import KlForm, LldsConfig, kl_term, likelihood_guard
from agentrl.types import Status


class UpdateConfig(BaseModel, frozen=True, extra="forbid"):
    """How credit becomes new weights.

    Attributes:
        kl_coef: weight of the KL term against the reference model.
        kl_form: k1 = pi - ref; abs = |k1|; k2 = k1^2 / 2; k3 = exp(-k1) + k1 - 1, clamped to +-10 (all
            log-probs).
        kl_in: the loss, or each step's reward before credit (`agentrl.trainer.kl_reward`).
        entropy_coef: weight of the entropy bonus.
        aggregation, sequence, norm_tokens: see `agentrl.model.pack.aggregation_weights`.
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
        epo: EPO's entropy band. llds: LLDS's guard of the likelihood of good answers. Both are off by default.
    """

    kl_coef: float = Field(0.0, ge=0)
    kl_form: KlForm = "k3"
    kl_in: Literal["loss", "reward"] = "loss"
    entropy_coef: float = 0.0
    aggregation: Aggregation = "token-mean"
    sequence: Literal["step", "episode"] = "step"
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
    epo: EpoConfig = EpoConfig()
    llds: LldsConfig = LldsConfig()

    @property
    def kl_loss_coef(self) -> float:
        """Weight of the KL term in the loss."""
        return self.kl_coef if self.kl_in == "loss" else 0.0


class Terms(NamedTuple):
    """Loss of each target [K], and per-target values whose weighted mean is logged."""

    per_token: Tensor
    metrics: Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """What is trained: `rows` ascending, `active` [N] those of them that need a forward pass, the `copies` of rows
    that the loss counts, and, where it needs some tokens at once, the `whole` [N] whose parts stay together."""

    graph: StepGraph
    rows: np.ndarray
    active: np.ndarray
    copies: Copies
    terms: Callable[[TokenStats, np.ndarray, Spread, Copies], Terms]
    entropy: EntropyMode
    temperature: float
    whole: np.ndarray | None = None
    beside: Callable[[np.ndarray], None] | None = None


def update(
    learner: Learner,
    graph: StepGraph,
    credit: Credit,
    config: UpdateConfig,
    loss: ModuleType,
    loss_config: Any,
    *,
    temperature: float,
    seed: int = 0,
    beside: Callable[[np.ndarray], None] | None = None,
) -> dict[str, float]:
    """Policy-gradient update of the learner on an annotated graph.

    Args:
        loss: a file of `algorithms/loss`.
        loss_config: its configuration; one with a true `whole_episodes` gets an episode's tokens in one
            micro-batch.
        temperature: of the sampling; 0 (greedy) counts as 1, as in the engine.
        seed: of the order of mini-batches and of dropout.
        beside: called with a mini-batch's rows before its optimiser step, to add a gradient of its own (a critic on
            the policy's trunk).

    Returns:
        Metrics of the whole update; means are over decisions, each weighted as in the loss.
    """
    trained = credit.assigned & (graph.valid | config.train_invalid)  # [N]
    if not config.train_unfinished:
        trained = trained & ~unfinished(graph)
    whole_episodes = getattr(loss_config, "whole_episodes", False)
    copies = _copies(graph, credit, graph.weight * trained, config, whole_episodes)
    epo = None
    if config.epo.coef:
        epo = EpoTerm(config.epo, learner.past_entropy, graph.turn[copies.row], learner.updates, learner.total_updates)
    work = Work(
        graph=graph,
        rows=np.flatnonzero(graph.weight * credit.weight * trained > 0),
        active=_active(graph, credit, config, loss),
        copies=copies,
        terms=_policy_terms(graph, credit, config, loss, loss_config, epo),
        entropy="gradient" if config.entropy_coef or config.epo.coef else "value",
        temperature=temperature or 1.0,
        whole=roots(graph.parent) if whole_episodes else None,
        beside=beside,
    )
    metrics = _descend(learner, work, config, config.epochs, config.minibatches, seed)
    if epo is not None:
        epo.remember()
    idle = float((~work.active[work.rows]).sum())
    return {**metrics, "dropped_rows": float(len(graph) - len(work.rows)), "idle_rows": idle}


def _copies(
    graph: StepGraph, credit: Credit, use: np.ndarray, config: UpdateConfig, whole_episodes: bool = False
) -> Copies:
    """What the loss counts: rows, or the paths through them where a ratio or a mean is over whole paths."""
    over_episodes = config.sequence == "episode" and config.aggregation != "token-mean"
    per_path = (whole_episodes or over_episodes) and forked(graph)
    return of_paths(graph, credit, use) if per_path else of_rows(graph, credit, use)


def unfinished(graph: StepGraph) -> np.ndarray:
    """[N] bool, rows of rollouts whose first agent's chain a limit ended."""
    limited = (graph.ending > Status.DONE) & (graph.ending < Status.ENV_ERROR) & (graph.caller < 0)
    rows: np.ndarray = np.isin(graph.rollout, graph.rollout[limited])
    return rows


def _active(graph: StepGraph, credit: Credit, config: UpdateConfig, loss: ModuleType) -> np.ndarray:
    """[N] bool, rows that can have a gradient: where no other term asks for them, steps without credit need
    no pass.

    They still count in every denominator. A loss file says `ZERO_WITHOUT_CREDIT = True` if it is 0 at P = M =
    0.
    """
    others = config.kl_loss_coef or config.entropy_coef or config.epo.coef or config.llds.coef
    idle_allowed = getattr(loss, "ZERO_WITHOUT_CREDIT", False) and not others
    if not idle_allowed or credit.token_advantage is not None:
        return np.ones(len(graph), bool)
    return (credit.positive > 0) | (credit.negative > 0)


def clone(
    learner: Learner,
    graph: StepGraph,
    config: UpdateConfig,
    *,
    minibatches: int | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """Behaviour cloning: cross-entropy on the sampled tokens, each row as often as its `weight` says.

    The learner's distribution is the one it will act with: restricted to allowed sets, at temperature 1.
    """

    def terms(stats: TokenStats, token: np.ndarray, on: Spread, copies: Copies) -> Terms:
        weight = _of(copies.weight[on.copy], stats.logprob)
        return Terms(-weight * stats.logprob, {"probability": stats.logprob.detach().exp()})

    work = Work(
        graph=graph,
        rows=np.flatnonzero(graph.weight > 0),
        active=np.ones(len(graph), bool),
        copies=_copies(graph, Credit.of(np.zeros(len(graph))), graph.weight, config),
        terms=terms,
        entropy="value",
        temperature=1.0,
    )
    metrics = _descend(learner, work, config, config.epochs, minibatches or config.minibatches, seed)
    return {**metrics, "dropped_rows": float(len(graph) - len(work.rows))}


def _policy_terms(
    graph: StepGraph,
    credit: Credit,
    config: UpdateConfig,
    loss: ModuleType,
    loss_config: Any,
    epo: EpoTerm | None,
) -> Callable[[TokenStats, np.ndarray, Spread, Copies], Terms]:
    """The loss of each target from its log-prob: policy gradient and regularisers."""
    importance = graph.columns.get("importance")  # [S]
    old = graph.column("old_logprob", "a policy update")  # [S]
    reference = graph.column("ref_logprob", "update.kl_coef > 0") if config.kl_loss_coef > 0 else None

    def terms(stats: TokenStats, token: np.ndarray, on: Spread, copies: Copies) -> Terms:
        """Of the targets of copies: their statistics and their places [X] in the token table."""

        def like(x: np.ndarray) -> Tensor:
            return _of(x, stats.logprob)

        weight = copies.weight[on.copy]  # [X]
        if credit.token_advantage is None:
            positive, negative = copies.positive[on.copy], copies.negative[on.copy]  # [X]
        else:
            advantage = credit.token_advantage[token] * weight  # [X]
            positive, negative = np.maximum(advantage, 0.0), np.maximum(-advantage, 0.0)
        corrected = np.ones(len(token)) if importance is None else importance[token]  # [X]
        inputs = LossInputs(
            logprob=stats.logprob,
            old_logprob=like(old[token]),
            ref_logprob=None if reference is None else like(reference[token]),
            entropy=stats.entropy,
            positive=like(positive * corrected),
            negative=like(negative * corrected),
            weight=like(weight),
            step=torch.from_numpy(on.copy).to(stats.logprob.device),
            path=torch.from_numpy(copies.path[on.copy]).to(stats.logprob.device),
        )
        policy: LossOutput = loss.loss(inputs, loss_config)
        return _with_penalties(inputs, policy, config, epo)

    return terms


def _with_penalties(inputs: LossInputs, policy: LossOutput, config: UpdateConfig, epo: EpoTerm | None) -> Terms:
    """Add KL, entropy bonus and the other regularisers, which the step's W multiplies."""
    per_token, logged = policy.per_token, dict(policy.metrics)
    if inputs.ref_logprob is not None:
        kl = kl_term(inputs.logprob, inputs.ref_logprob, config.kl_form)  # [K]
        per_token = per_token + config.kl_loss_coef * inputs.weight * kl
        logged["kl_ref"] = kl.detach()
    if config.entropy_coef and inputs.entropy is not None:
        per_token = per_token - config.entropy_coef * inputs.weight * inputs.entropy
    if epo is not None:
        term = epo(inputs)
        per_token = per_token + term.per_token
        logged["epo_band"] = term.band
    if config.llds.coef:
        fell = likelihood_guard(inputs.logprob, inputs.old_logprob, inputs.positive, inputs.negative, inputs.step)
        per_token = per_token + config.llds.coef * inputs.weight * fell
        logged["llds"] = fell.detach()
    return Terms(per_token, logged)


def _descend(
    learner: Learner, work: Work, config: UpdateConfig, epochs: int, minibatches: int, seed: int
) -> dict[str, float]:
    """All optimiser steps of one update."""
    meter, rate = Meter(), learner.rate
    learner.network.model.train()
    with learner.network.attending(), _dropout_of(learner, seed):
        for epoch in range(epochs):
            order = np.random.default_rng([seed, epoch])
            for rows in split(work.graph, work.rows, minibatches, config.unit, order):
                _minibatch(learner, work, rows, config, meter)
    learner.network.model.eval()
    learner.updates += 1
    return {**meter.means(), "lr_scale": rate}


@contextmanager
def _dropout_of(learner: Learner, seed: int) -> Iterator[None]:
    """Dropout's noise depends on the seed alone, so that a resumed run draws what an uninterrupted one would."""
    device = learner.network.device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(fold([seed]))
        yield


def _minibatch(learner: Learner, work: Work, rows: np.ndarray, config: UpdateConfig, meter: "Meter") -> None:
    """One optimiser step on `rows`."""
    tokens, net, copies = work.graph.tokens, learner.network, work.copies
    assert tokens is not None
    inside = np.flatnonzero(np.isin(copies.row, rows))  # [C of the mini-batch]
    share = np.zeros(len(copies.row))  # [C]
    share[inside] = aggregate(work.graph, copies.take(inside), config.aggregation, config.sequence, config.norm_tokens)
    total = np.bincount(copies.row, share, len(work.graph))  # [N] over the copies of a row
    batch = pack(tokens, rows[work.active[rows]], total[token_rows(tokens)], sharing=net.sharing)
    for part in microbatches(batch, config.max_tokens, None if work.whole is None else work.whole[batch.step]):
        hidden = net.hidden(part)[torch.from_numpy(part.at).to(net.device)]  # [K, d]
        stats = token_stats(
            net.logits,
            hidden,
            part.target,
            part.allowed_offsets,
            part.allowed_ids,
            vocabulary=net.config.vocab_size,
            temperature=work.temperature,
            entropy=work.entropy,
        )
        on = spread(part.step, copies.row)  # [X]
        stats = _at(stats, on.target)
        terms = work.terms(stats, part.token[on.target], on, copies)
        counted = _of(share[on.copy], stats.logprob)  # [X]
        loss = (counted * terms.per_token).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        times = counted * _of(copies.weight[on.copy], stats.logprob)  # [X]
        meter.add(len(part), loss, times, {**terms.metrics, "entropy": stats.entropy}, len(part.target))
    if work.beside is not None:
        work.beside(rows)
    if len(batch.target) or work.beside is not None:
        meter.step(*learner.step())


def _at(stats: TokenStats, target: np.ndarray) -> TokenStats:
    """The statistics of some targets, each as often as it is named."""
    index = torch.from_numpy(target).to(stats.logprob.device)
    return TokenStats(stats.logprob[index], None if stats.entropy is None else stats.entropy[index])


def _of(x: np.ndarray, like: Tensor) -> Tensor:
    """A column as a tensor of the log-probs' type and device."""
    return torch.from_numpy(np.asarray(x, np.float64)).to(like.device, like.dtype)


class Meter:
    """Sums of an update's metrics, kept on the device until they are asked for."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.counts = {"packed_tokens": 0.0, "decision_tokens": 0.0, "microbatches": 0.0, "optimizer_steps": 0.0}
        self.norms: list[float] = []
        self.skipped = 0

    def add(
        self, tokens: int, loss: Tensor, share: Tensor, values: Mapping[str, Tensor | None], decisions: int
    ) -> None:
        """A micro-batch: its loss, the share [X] of each copy of a target in the mini-batch's means, values [X]."""
        named = {"loss": loss.detach(), "share": share.sum()}
        named |= {name: (share * x.detach()).sum() for name, x in values.items() if x is not None}
        for name, x in named.items():
            self.sums[name] = self.sums[name] + x if name in self.sums else x
        self.counts["packed_tokens"] += tokens
        self.counts["decision_tokens"] += decisions
        self.counts["microbatches"] += 1

    def step(self, grad_norm: float, skipped: bool) -> None:
        """An optimiser step."""
        self.counts["optimizer_steps"] += 1
        self.skipped += skipped
        if not skipped:
            self.norms.append(grad_norm)

    def means(self) -> dict[str, float]:
        """Loss and gradient norm as means over optimiser steps, the rest as means over decisions; and the
        counts."""
        share = float(self.sums.pop("share", torch.tensor(0.0)))
        loss = float(self.sums.pop("loss", torch.tensor(0.0))) / max(self.counts["optimizer_steps"], 1.0)
        means = {name: float(x) / share for name, x in self.sums.items()} if share else {}
        norm = sum(self.norms) / len(self.norms) if self.norms else 0.0
        return {"loss": loss, **means, "grad_norm": norm, "skipped_steps": float(self.skipped), **self.counts}
