"""Measures how far credit methods agree on the same steps, and finds the steps on which they differ most."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from agentrl.credit.method import Credit
from agentrl.graph import StepGraph

LEAST_APART = 1e-9  # a smaller difference (`apart`, dimensionless) comes from rounding


def agreement(graph: StepGraph, credits: Mapping[str, Credit], top: int) -> list[dict[str, Any]]:
    """One entry per pair of methods: correlation, share of sign disagreements, and the `top` steps that differ most.

    Only steps to which both methods assign credit are compared. Each advantage is first divided by the root mean square
    of its method's advantages over these steps. The difference of a step, `apart`, is the absolute difference of the
    two quotients. A step with a difference of LEAST_APART or less is not listed among the `top` steps.
    """
    entries = []
    for (a, left), (b, right) in combinations(credits.items(), 2):
        rows = np.flatnonzero(left.assigned & right.assigned)
        x, y = left.advantage[rows], right.advantage[rows]  # [both]
        apart = np.abs(unit(x) - unit(y))  # [both]
        worst = [i for i in np.argsort(-apart, kind="stable")[:top] if apart[i] > LEAST_APART]
        entries.append(
            {
                "methods": [a, b],
                "steps": len(rows),
                "correlation": correlation(x, y),
                "sign_disagreements": float(np.mean(x * y < 0)) if len(rows) else 0.0,
                "most_apart": [
                    describe(graph, int(rows[i])) | {a: x[i].item(), b: y[i].item(), "apart": apart[i].item()}
                    for i in worst
                ],
            }
        )
    return entries


def unit(x: np.ndarray) -> np.ndarray:
    """x divided by its root mean square; unchanged if all of x is 0."""
    size = float(np.sqrt(np.mean(x**2))) if len(x) else 0.0
    return x / size if size else x


def correlation(x: np.ndarray, y: np.ndarray) -> float | None:
    """Pearson's correlation of x and y; None if x or y is constant or has fewer than two entries."""
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def describe(graph: StepGraph, row: int) -> dict[str, Any]:
    """The row and turn of a step, and its names and texts if the graph has them."""
    words: dict[str, Any] = {"row": int(row), "turn": int(graph.turn[row])}
    for name in ("group", "episode", "state", "action"):
        if name in graph.names and graph.columns[name][row] >= 0:
            words[name] = graph.names[name][graph.columns[name][row]]
    for name in ("observation", "answer"):
        if name in graph.texts:
            words[name] = graph.texts[name][row]
    return words
