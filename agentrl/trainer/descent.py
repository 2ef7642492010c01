"""Optimiser steps on packed mini-batches, for any loss.

Letters: see `agentrl.trainer.path_weights`; also R rows to train, T packed tokens of a micro-batch, d hidden size.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from agentrl.credit import Credit
from agentrl.graph import StepGraph, forked, token_rows
from agentrl.model import EntropyMode, TokenStats, microbatches, pack, token_stats
from agentrl.trainer.learner import Learner
from agentrl.trainer.meter import Meter
from agentrl.trainer.minibatch import split
from agentrl.trainer.path_weights import Copies, Spread, aggregate, of_paths, of_rows, spread
from agentrl.trainer.ranks import ranks_of, run_idle
from agentrl.trainer.sections import UpdateConfig
from agentrl.trainer.temperatures import step_temperatures


class Terms(NamedTuple):
    """The loss [X] of each target of the copies, and metrics: values [X] by name. Their weighted means are logged."""

    per_token: Tensor
    metrics: Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """The rows that one update trains, and their loss.

    Attributes:
        graph: an annotated graph with tokens.
        rows: [R] int64, ascending, the rows to train.
        active: [N] bool; of the rows to train, only the active ones get a forward pass.
        copies: the copies of rows that the loss counts.
        terms: computes the loss. Its arguments are: the statistics [X] of the targets of all copies; the targets'
            indices [X] in the token table; the `Spread`, which names the target and the copy of each of these entries;
            and the copies.
        entropy: see `agentrl.model.token_stats`.
        temperature: sampling temperature, above 0, of the steps that have no entry in the graph's column `temperature`.
        bundle: [N] int64; rows with equal entries stay in one micro-batch; None if the loss does not need this.
        beside: gets a mini-batch's rows and adds the gradient of another loss, before the optimiser step; None for no
            other loss.
    """

    graph: StepGraph
    rows: np.ndarray
    active: np.ndarray
    copies: Copies
    terms: Callable[[TokenStats, np.ndarray, Spread, Copies], Terms]
    entropy: EntropyMode
    temperature: float
    bundle: np.ndarray | None = None
    beside: Callable[[np.ndarray], None] | None = None


def counted_copies(
    graph: StepGraph, credit: Credit, use: np.ndarray, config: UpdateConfig, whole_episodes: bool = False
) -> Copies:
    """The copies that the loss counts.

    If the graph is branched and a ratio or a mean of the loss spans whole episodes, a row has one copy per path through
    it. Otherwise each row has one copy.
    """
    over_episodes = config.sequence == "episode" and config.aggregation not in (None, "token-mean")
    per_path = (whole_episodes or over_episodes) and forked(graph)
    return of_paths(graph, credit, use) if per_path else of_rows(graph, credit, use)


def descend(
    learner: Learner, work: Work, config: UpdateConfig, epochs: int, minibatches: int, seed: int
) -> dict[str, float]:
    """All optimiser steps of one update; returns its metrics."""
    meter, rate, ranks = learner.meter(), learner.rate, ranks_of(learner.network)
    passes = learner.network.learning(dropout=learner.config.dropout)
    with passes, learner.noise([seed, ranks.rank] if ranks.rank else [seed]):
        for epoch in range(epochs):
            order = np.random.default_rng([seed, epoch])
            for rows in split(work.graph, work.rows, minibatches, config.unit, order):
                _minibatch(learner, work, rows, config, meter)
    learner.updates += 1
    return {**meter.means(ranks), "lr_scale": rate, "tree_packing": float(learner.network.sharing == "tree")}


def _minibatch(learner: Learner, work: Work, rows: np.ndarray, config: UpdateConfig, meter: "Meter") -> None:
    """One optimiser step on `rows`; no step if these rows have no targets and no other loss adds a gradient."""
    tokens, net, copies = work.graph.tokens, learner.network, work.copies
    assert tokens is not None
    inside = np.flatnonzero(np.isin(copies.row, rows))  # [C of the mini-batch]
    share = np.zeros(len(copies.row))  # [C]
    how, sequence = config.aggregation or "token-mean", config.sequence or "step"
    share[inside] = aggregate(work.graph, copies.take(inside), how, sequence)
    total = np.bincount(copies.row, share, len(work.graph))  # [N] over the copies of a row
    hot = step_temperatures(work.graph, work.temperature)
    batch = pack(tokens, rows[work.active[rows]], total[token_rows(tokens)], sharing=net.sharing)
    parts = microbatches(batch, config.max_tokens, None if work.bundle is None else work.bundle[batch.row])
    for part, counts in ranks_of(net).share(parts):
        hidden = net.hidden(part)  # [T, d]
        if not counts:
            run_idle(net, hidden)
            continue
        stats = token_stats(
            net.logits,
            hidden[torch.from_numpy(part.at).to(net.device)],  # [K, d]
            part.target,
            part.allowed_offsets,
            part.allowed_ids,
            vocabulary=net.config.vocab_size,
            temperature=hot if isinstance(hot, float) else hot[part.row],
            entropy=work.entropy,
        )
        on = spread(part.row, copies.row)  # [X]
        stats = _at(stats, on.target)
        terms = work.terms(stats, part.source[on.target], on, copies)
        counted = column_like(share[on.copy], stats.logprob)  # [X]
        loss = (counted * terms.per_token).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        times = counted * column_like(copies.weight[on.copy], stats.logprob)  # [X]
        meter.add(len(part), loss, times, {**terms.metrics, "entropy": stats.entropy}, len(part.target))
    if work.beside is not None:
        work.beside(rows)
    if len(batch.target) or work.beside is not None:
        meter.step(*learner.step())


def _at(stats: TokenStats, target: np.ndarray) -> TokenStats:
    """The statistics [X] of the targets with the indices `target` [X], which may repeat."""
    index = torch.from_numpy(target).to(stats.logprob.device)
    return TokenStats(stats.logprob[index], None if stats.entropy is None else stats.entropy[index])


def column_like(x: np.ndarray, like: Tensor) -> Tensor:
    """A column as a tensor with the type and the device of `like`."""
    return torch.from_numpy(np.asarray(x, np.float64)).to(like.device, like.dtype)
