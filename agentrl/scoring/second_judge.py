"""Measures how far a second judge, which no reward reads, disagrees with the judge that the reward reads."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.credit import ends, signal, totals
from agentrl.graph import StepGraph
from agentrl.scoring.sections import SecondJudge


class Disagreement:
    """Follows the difference of two signals over the iterations of a run.

    If a policy exploits one judge, this judge's scores rise and the other judge's scores do not: the gap grows
    (Gao et al., arXiv:2210.10760, show this for proxy and gold reward models).

    Args:
        config: section [scoring.second].
    """

    def __init__(self, config: SecondJudge) -> None:
        self.config = config
        self.past: list[float] = []

    def observe(self, graph: StepGraph) -> dict[str, float]:
        """Metrics of an iteration's graph, over the paths that have both signals.

        `judges_apart` is the mean absolute difference of the two signals, `judges_gap` the mean of the first minus the
        second. `judges_discord` is the share of pairs with opposite order, among the pairs of a group in which neither
        signal is tied. Without paths that have both signals, there are no metrics.
        """
        at = ends(graph)
        first, second = (signal(graph, name) for name in (self.config.signal, self.config.held_out))  # [N] each
        both = (at.weight > 0) & ~np.isnan(first[at.row]) & ~np.isnan(second[at.row])  # [L]
        if not both.any():
            return {}
        a, b = (totals(graph, x, at)[both] for x in (first, second))  # [L'] each
        apart = float(np.abs(a - b).mean())
        self.past = [*self.past, apart][-self.config.window :]
        found = {"judges_apart": apart, "judges_gap": float((a - b).mean())}
        discord = discordant(a, b, at.group[both])
        return found if discord is None else {**found, "judges_discord": discord}

    def broken(self) -> str:
        """Why the run must stop; empty if the judges agree well enough, or fewer than `window` iterations were seen."""
        mean = sum(self.past) / max(1, len(self.past))
        if len(self.past) < self.config.window or mean <= self.config.threshold:
            return ""
        return (
            f"the held-out judge {self.config.held_out!r} differs from {self.config.signal!r} by {mean:.2f} over the "
            f"last {self.config.window} iterations, above scoring.second.threshold = {self.config.threshold:g}: read "
            "some of the answers (agentrl view), try agentrl check RECIPE.toml --reward, and change the rubric; or "
            "raise scoring.second.threshold and go on with --resume"
        )

    def state_dict(self) -> dict[str, Any]:
        """The differences of the last iterations."""
        return {"past": list(self.past)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.past = [float(x) for x in state["past"]]


def discordant(a: np.ndarray, b: np.ndarray, group: np.ndarray) -> float | None:
    """The share of pairs that a [L] and b [L] order differently.

    A pair is two paths of one group that have different values in a, and different values in b.

    None if there is no such pair in any group. `group` is [L] int64.
    """
    wrong = pairs = 0
    for number in np.unique(group):
        own = group == number
        x, y = np.sign(np.subtract.outer(a[own], a[own])), np.sign(np.subtract.outer(b[own], b[own]))  # [G, G] each
        wrong, pairs = wrong + int((x * y < 0).sum()), pairs + int((x * y != 0).sum())
    return wrong / pairs if pairs else None
