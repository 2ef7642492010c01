"""What a credit method is, and how the core applies one to a stored graph.

A catalogue file in `algorithms/credit/` offers a frozen pydantic `Config` and

    def credit(graph: StepGraph, config: Config) -> Credit

pure, NumPy only. Methods see chains: on a graph with branch points they get its root-to-leaf paths and what they return
is pooled; a method written for nodes says `ON = "nodes"` in its file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from agentrl.graph import PLAYED, Paths, StepGraph, paths


@dataclass(frozen=True, kw_only=True, eq=False)
class Credit:
    """What each step earned.

    The token loss of a step is positive * l(+1) + negative * l(-1) + weight * (terms without an advantage); on a chain
    positive = max(A, 0), negative = max(-A, 0), weight = 1.

    Attributes:
        advantage: [N] float64, positive - negative at unit weights: the number to print.
        positive, negative: [N] float64 >= 0, sums over the paths through a step.
        weight: [N] float64, number of paths through a step (times their weights).
        assigned: [N] bool; False means "no credit given", which is not an advantage of 0.
        token_advantage: [S] float64 over the graph's token table, or None: then every token takes its step's.
        returns: [N] float64 value targets, or None.
        parts: named arrays [N] (or [S]) that `agentrl credit` prints beside the advantage.
        metrics: scalars for the log.
    """

    advantage: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    weight: np.ndarray
    assigned: np.ndarray
    token_advantage: np.ndarray | None = None
    returns: np.ndarray | None = None
    parts: Mapping[str, np.ndarray] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        advantage: np.ndarray,
        *,
        assigned: np.ndarray | None = None,
        token_advantage: np.ndarray | None = None,
        returns: np.ndarray | None = None,
        parts: Mapping[str, np.ndarray] | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> "Credit":
        """Credit of rows that lie on one path each."""
        given = np.ones(len(advantage), bool) if assigned is None else assigned  # [N]
        a = np.where(given, advantage, 0.0)  # [N]
        return cls(
            advantage=a,
            positive=np.maximum(a, 0.0),
            negative=np.maximum(-a, 0.0),
            weight=given.astype(np.float64),
            assigned=given,
            token_advantage=token_advantage,
            returns=returns,
            parts=parts or {},
            metrics=metrics or {},
        )


def assign(method: ModuleType, graph: StepGraph, config: Any) -> Credit:
    """Run a credit method on what it may see, and put the result back on the graph's rows.

    Rows that were not played, and rollouts that an environment error ended, are not assigned. On a branched graph a
    method for chains sees the expanded paths; a shared row's positive and negative parts are sums over its paths.
    """
    seen = np.flatnonzero((graph.kind == PLAYED) & ~graph.failed())
    if len(seen) == len(graph) and not (graph.branched and getattr(method, "ON", "chains") == "chains"):
        result: Credit = method.credit(graph, config)
        return result
    part = graph if len(seen) == len(graph) else graph.take(seen)
    if part.branched and getattr(method, "ON", "chains") == "chains":
        on_paths = paths(part)
        pooled = pool(method.credit(expand(part, on_paths), config), on_paths, len(part))
    else:
        pooled = method.credit(part, config)
    return scatter(pooled, seen, len(graph))


def expand(graph: StepGraph, on: Paths) -> StepGraph:
    """The graph of root-to-leaf copies: each path an episode of its own, scored by all its rewards."""
    wide = graph.take(on.row)
    start = np.ones(len(on.row), bool)
    start[1:] = on.leaf[1:] != on.leaf[:-1]  # [P rows] first row of its path
    parent = np.where(start, -1, np.arange(len(on.row)) - 1)
    return wide.with_columns(parent=parent, episode=on.leaf, caller=np.full(len(on.row), -1))


def pool(credit: Credit, on: Paths, n: int) -> Credit:
    """Sums over paths back on the shared rows: [paths' rows] -> [n]."""

    def total(x: np.ndarray) -> np.ndarray:
        return np.bincount(on.row, x, minlength=n)

    positive, negative, weight = total(credit.positive), total(credit.negative), total(credit.weight)
    shares = np.maximum(np.bincount(on.row, minlength=n), 1)
    return Credit(
        advantage=positive - negative,
        positive=positive,
        negative=negative,
        weight=weight,
        assigned=total(credit.assigned.astype(float)) > 0,
        returns=None if credit.returns is None else total(credit.returns) / shares,
        parts={name: total(x) / shares for name, x in credit.parts.items() if len(x) == len(on.row)},
        metrics=credit.metrics,
    )


def scatter(credit: Credit, rows: np.ndarray, n: int) -> Credit:
    """Credit of a selection of rows as credit of all n rows; the others are not assigned."""

    def wide(x: np.ndarray, fill: float = 0.0) -> np.ndarray:
        out = np.full(n, fill, dtype=x.dtype if x.dtype == bool else np.float64)
        out[rows] = x
        return out

    return Credit(
        advantage=wide(credit.advantage),
        positive=wide(credit.positive),
        negative=wide(credit.negative),
        weight=wide(credit.weight),
        assigned=wide(credit.assigned),
        returns=None if credit.returns is None else wide(credit.returns),
        parts={name: wide(x, np.nan) for name, x in credit.parts.items()},
        metrics=credit.metrics,
    )
