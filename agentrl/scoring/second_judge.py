"""Measures how far a second judge, which no reward reads, disagrees with the judge that the reward reads."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.credit import ends, signal, totals
from agentrl.graph import StepGraph
from agentrl.scoring.sections import SecondJudge


class Disagreement:
    """Measures the difference of two signals in each iteration of a run.

    If a policy exploits one judge, this judge's scores rise and the other judge's scores do not, so the difference
    grows (Gao et al., arXiv:2210.10760, show this for proxy and gold reward models).

    Args:
        config: section [scoring.second].
    """

    def __init__(self, config: SecondJudge) -> None:
        self.config = config
        self.past: list[float] = []

    def observe(self, graph: StepGraph) -> dict[str, float]:
        """Metrics of an iteration's graph, over the scored paths that have both signals on their last row.

        The value of a signal on a path is its sum along the path. `judges_apart` is the mean absolute difference of the
        two values, `judges_gap` the mean of the value of `signal` minus that of `held_out`. `judges_discord` is the
        share that `discordant` returns. Without paths that have both signals, there are no metrics.
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
        """Why the run must stop; empty if the run may go on.

        The run may go on if the mean of `judges_apart` over the last `window` iterations is at most `threshold`, or if
        fewer than `window` iterations have been observed.
        """
        mean = sum(self.past) / max(1, len(self.past))
        if len(self.past) < self.config.window or mean <= self.config.threshold:
            return ""
        return (
            f"the held-out judge {self.config.held_out!r} differs from {self.config.signal!r} by {mean:.2f} over the "
            f"last {self.config.window} iterations, above scoring.second.threshold = {self.config.threshold:g}: read "
            "some of the answers (agentrl view), try agentrl check RECIPE --reward, and change the rubric; or "
            "raise scoring.second.threshold and continue with --resume"
        )

    def state_dict(self) -> dict[str, Any]:
        """The values of `judges_apart` in the last iterations, at most `window` of them."""
        return {"past": list(self.past)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.past = [float(x) for x in state["past"]]


def discordant(a: np.ndarray, b: np.ndarray, group: np.ndarray) -> float | None:
    """The share of pairs of paths that a [L] and b [L] put in opposite order; `group` is [L] int64.

    A pair is two paths of one group that have different values in a, and different values in b. The share is None if no
    group has such a pair.
    """
    wrong = pairs = 0
    for number in np.unique(group):
        own = group == number
        x, y = np.sign(np.subtract.outer(a[own], a[own])), np.sign(np.subtract.outer(b[own], b[own]))  # [G, G] each
        wrong, pairs = wrong + int((x * y < 0).sum()), pairs + int((x * y != 0).sum())
    return wrong / pairs if pairs else None
