"""Optimiser steps on mini-batches, for any loss. Letters: see `agentrl.trainer.path_weights`."""

import numpy as np

from agentrl.credit import Credit
from agentrl.graph import StepGraph, forked
from agentrl.trainer.meter import Meter
from agentrl.trainer.minibatch import split
from agentrl.trainer.passes import PolicyLearner
from agentrl.trainer.path_weights import Copies, aggregate, of_paths, of_rows
from agentrl.trainer.sections import UpdateConfig
from agentrl.trainer.work import Work


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
    learner: PolicyLearner, work: Work, config: UpdateConfig, epochs: int, minibatches: int, seed: int
) -> dict[str, float]:
    """All optimiser steps of one update; returns its metrics."""
    meter, rate, passes = learner.meter(), learner.rate, learner.passes
    with passes.learning(seed):
        for epoch in range(epochs):
            passes.observe(work, work.dropped, config.max_tokens, meter)
            order = np.random.default_rng([seed, epoch])
            for rows in split(work.graph, work.rows, minibatches, config.unit, order):
                passes.observe(work, rows[~work.active[rows]], config.max_tokens, meter)
                _minibatch(learner, work, rows, config, meter)
    learner.updates += 1
    return {**passes.means(meter), "lr_scale": rate}


def _minibatch(learner: PolicyLearner, work: Work, rows: np.ndarray, config: UpdateConfig, meter: Meter) -> None:
    """One optimiser step on `rows`; no step if these rows have no targets and no other loss adds a gradient."""
    copies = work.copies
    inside = np.flatnonzero(np.isin(copies.row, rows))  # [C of the mini-batch]
    share = np.zeros(len(copies.row))  # [C]
    how, sequence = config.aggregation or "token-mean", config.sequence or "step"
    share[inside] = aggregate(work.graph, copies.take(inside), how, sequence)
    trained = learner.passes.accumulate(work, rows, share, config.max_tokens, meter)
    if work.beside is not None:
        work.beside(rows)
    if trained or work.beside is not None:
        meter.step(*learner.step())
