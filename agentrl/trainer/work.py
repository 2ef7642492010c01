"""What one update trains: the rows, the copies of them that the loss counts, and the loss of their targets.

Letters: see `agentrl.trainer.path_weights`; also R rows to train.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from agentrl.graph import StepGraph
from agentrl.model import EntropyMode, TokenStats, columns_like
from agentrl.trainer.meter import Meter
from agentrl.trainer.path_weights import Copies, Spread


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
        active: [N] bool; of the rows to train, only the active ones can have a gradient.
        dropped: [D] int64, ascending, rows that are not trained and count in the metrics all the same.
        copies: the copies of rows that the loss counts.
        times: [C] how often a decision of each copy counts in the metrics.
        columns: the numbers [X] that `terms` needs of the targets of all copies. Its arguments are: the targets'
            indices [X] in the token table, and the `Spread`, which names the target and the copy of each of these
            entries.
        terms: computes the loss. Its arguments are: the statistics [X] of the targets of all copies; the result of
            `columns`, as tensors; whether an optimiser step of this update has moved the weights; and what `bound`
            returned, else None.
        bound: computes a number of the loss from a mini-batch's rows, before their passes; None: there is no such
            number. It is not called if the mini-batch is one micro-batch.
        entropy: see `agentrl.model.token_stats`.
        temperature: sampling temperature, above 0, of the steps that have no entry in the graph's column `temperature`.
        bundle: [N] int64; rows with equal entries stay in one micro-batch; None if the loss does not need this.
        beside: gets a mini-batch's rows and adds the gradient of another loss, before the optimiser step; None for no
            other loss.
    """

    graph: StepGraph
    rows: np.ndarray
    dropped: np.ndarray
    active: np.ndarray
    copies: Copies
    times: np.ndarray
    columns: Callable[[np.ndarray, Spread], Sequence[np.ndarray]]
    terms: Callable[[TokenStats, Sequence[Tensor], bool, float | None], Terms]
    entropy: EntropyMode
    temperature: float
    bundle: np.ndarray | None = None
    beside: Callable[[np.ndarray], None] | None = None
    bound: Callable[[np.ndarray], float] | None = None


def observed_loss(
    work: Work,
    stats: TokenStats,
    source: np.ndarray,
    on: Spread,
    meter: Meter,
    share: np.ndarray,
    bound: float | None = None,
) -> Tensor:
    """The loss of the targets of all copies, a scalar; their metrics are counted.

    Args:
        work: what the update trains.
        stats: the statistics [K] of the targets.
        source: [K] the targets' indices in the token table.
        on: the places of the targets in the copies.
        meter: counts the metrics, and knows whether a step has moved the weights.
        share: [C] the weights of the copies in the loss.
        bound: what `work.bound` returned for the mini-batch, if it was called.
    """
    needed = work.columns(source[on.target], on)
    target, times, factor, *columns = columns_like(
        [on.target, work.times[on.copy], share[on.copy], *needed], stats.logprob
    )
    stats = TokenStats(stats.logprob[target], None if stats.entropy is None else stats.entropy[target])  # [X]
    terms = work.terms(stats, columns, meter.moved, bound)
    meter.observe(times, {**terms.metrics, "entropy": stats.entropy})
    return (factor.to(terms.per_token.dtype) * terms.per_token).sum()
