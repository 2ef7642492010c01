"""Optimiser steps on packed mini-batches, whatever the loss."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from agentrl.credit import Credit
from agentrl.graph import StepGraph, forked, token_rows
from agentrl.model import EntropyMode, TokenStats, microbatches, pack, token_stats
from agentrl.noise import fold
from agentrl.trainer.learner import Learner
from agentrl.trainer.meter import Meter
from agentrl.trainer.minibatch import split
from agentrl.trainer.path_weights import Copies, Spread, aggregate, of_paths, of_rows, spread
from agentrl.trainer.sections import UpdateConfig


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


def counted_copies(
    graph: StepGraph, credit: Credit, use: np.ndarray, config: UpdateConfig, whole_episodes: bool = False
) -> Copies:
    """What the loss counts: rows, or the paths through them where a ratio or a mean is over whole paths."""
    over_episodes = config.sequence == "episode" and config.aggregation not in (None, "token-mean")
    per_path = (whole_episodes or over_episodes) and forked(graph)
    return of_paths(graph, credit, use) if per_path else of_rows(graph, credit, use)


def descend(
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
    how, sequence = config.aggregation or "token-mean", config.sequence or "step"
    share[inside] = aggregate(work.graph, copies.take(inside), how, sequence, config.norm_tokens)
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
    """The statistics of some targets, each as often as it is named."""
    index = torch.from_numpy(target).to(stats.logprob.device)
    return TokenStats(stats.logprob[index], None if stats.entropy is None else stats.entropy[index])


def column_like(x: np.ndarray, like: Tensor) -> Tensor:
    """A column as a tensor of the log-probs' type and device."""
    return torch.from_numpy(np.asarray(x, np.float64)).to(like.device, like.dtype)
