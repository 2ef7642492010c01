"""Behaviour cloning: trains a policy to imitate the answers of demonstrations."""

import numpy as np

from agentrl.credit import Credit
from agentrl.graph import StepGraph
from agentrl.model import TokenStats
from agentrl.trainer.descent import Terms, Work, column_like, counted_copies, descend
from agentrl.trainer.learner import Learner
from agentrl.trainer.path_weights import Copies, Spread
from agentrl.trainer.sections import UpdateConfig


def clone(
    learner: Learner,
    graph: StepGraph,
    config: UpdateConfig,
    *,
    minibatches: int | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """Behaviour cloning: cross-entropy on the sampled tokens; the loss of a row is multiplied by its `weight`.

    The log-probabilities are those under each token's allowed set, at temperature 1. Tokens are aggregated as
    `config.aggregation` says; None means token-mean. If `minibatches` is None, `config.minibatches` is used.

    Returns:
        Metrics of the whole update.
    """

    def terms(stats: TokenStats, token: np.ndarray, on: Spread, copies: Copies) -> Terms:
        weight = column_like(copies.weight[on.copy], stats.logprob)
        return Terms(-weight * stats.logprob, {"probability": stats.logprob.detach().exp()})

    work = Work(
        graph=graph,
        rows=np.flatnonzero(graph.weight > 0),
        active=np.ones(len(graph), bool),
        copies=counted_copies(graph, Credit.of(np.zeros(len(graph))), graph.weight, config),
        terms=terms,
        entropy="value",
        temperature=1.0,
    )
    metrics = descend(learner, work, config, config.epochs, minibatches or config.minibatches, seed)
    return {**metrics, "dropped_rows": float(len(graph) - len(work.rows))}
