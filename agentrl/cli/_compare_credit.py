"""What `agentrl credit --compare a,b,c` shows: how far methods agree on the same steps, and where they do
not."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from agentrl.credit.method import Credit
from agentrl.graph.step_graph import StepGraph


def compare(graph: StepGraph, credits: Mapping[str, Credit], top: int) -> list[dict[str, Any]]:
    """One entry a pair of methods: correlation, share of sign disagreements, and the `top` steps apart the
    most.

    Distance is between advantages in units of each method's root mean square, over the steps both assign.
    """
    found = []
    for (a, left), (b, right) in combinations(credits.items(), 2):
        rows = np.flatnonzero(left.assigned & right.assigned)
        x, y = left.advantage[rows], right.advantage[rows]  # [both]
        apart = np.abs(unit(x) - unit(y))  # [both]
        worst = rows[np.argsort(-apart, kind="stable")[:top]]
        found.append(
            {
                "methods": [a, b],
                "steps": len(rows),
                "correlation": correlation(x, y),
                "sign_disagreements": float(np.mean(x * y < 0)) if len(rows) else 0.0,
                "most_apart": [
                    describe(graph, int(row)) | {a: left.advantage[row].item(), b: right.advantage[row].item()}
                    for row in worst
                ],
            }
        )
    return found


def unit(x: np.ndarray) -> np.ndarray:
    """x over its root mean square; zeros stay zeros."""
    size = float(np.sqrt(np.mean(x**2))) if len(x) else 0.0
    return x / size if size else x


def correlation(x: np.ndarray, y: np.ndarray) -> float | None:
    """Pearson's; None where one of them does not vary."""
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def describe(graph: StepGraph, row: int) -> dict[str, Any]:
    """Which step it is, in the user's words."""
    words: dict[str, Any] = {"turn": int(graph.turn[row])}
    for name in ("group", "episode", "state", "action"):
        if name in graph.names and graph.columns[name][row] >= 0:
            words[name] = graph.names[name][graph.columns[name][row]]
    for name in ("observation", "answer"):
        if name in graph.texts:
            words[name] = graph.texts[name][row]
    return words


def table(pairs: Sequence[Mapping[str, Any]]) -> str:
    """The comparison for the eye."""
    lines = [f"{'methods':32} {'steps':>7} {'correlation':>12} {'sign differs':>13}"]
    for pair in pairs:
        r = "-" if pair["correlation"] is None else f"{pair['correlation']:.4f}"
        lines.append(f"{' '.join(pair['methods']):32} {pair['steps']:7d} {r:>12} {pair['sign_disagreements']:13.2%}")
    for pair in pairs:
        a, b = pair["methods"]
        lines.append(f"\nmost apart, {a} and {b}:")
        for step in pair["most_apart"]:
            text = short(step.get("observation") or step.get("state", ""))
            act = short(step.get("action") or step.get("answer", ""))
            place = f"{step.get('episode', '?')} turn {step['turn']}"
            lines.append(f"  {step[a]:+9.4f} {step[b]:+9.4f}  {place}: {text} -> {act}")
    return "\n".join(lines)


def short(text: str, size: int = 60) -> str:
    """One line of a text."""
    flat = " ".join(text.split())
    return flat if len(flat) <= size else flat[: size - 3] + "..."
