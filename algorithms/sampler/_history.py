"""What samplers share: candidate tasks, the outcomes in a graph, and counts of outcomes per task."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from agentrl.env import ENDLESS
from agentrl.graph import PLAYED, StepGraph
from agentrl.types import Task


def pool(tasks: Sequence[Task], most: int, rng: np.random.Generator) -> list[Task]:
    """`most` tasks at random, or as many as the list has; without repeats, except from an endless list."""
    n, wanted = len(tasks), min(most, len(tasks))
    picks = rng.integers(n, size=wanted) if n > ENDLESS else rng.choice(n, size=wanted, replace=False)
    return [tasks[int(i)] for i in picks]


def outcomes(graph: StepGraph) -> Iterator[tuple[str, bool]]:
    """(key of the task, success) of each scored episode of an agent that no other agent called."""
    won = graph.succeeded  # [N]
    for row in np.flatnonzero(graph.first & (graph.kind == PLAYED) & (graph.caller < 0) & ~graph.failed()).tolist():
        yield graph.names["group"][graph.group[row]], bool(won[row])


class Posterior:
    """A Beta posterior of the success rate of each task, in which older outcomes count less.

    Source: MoPPS, arXiv:2507.04632, its update with temporal discounting: with s successes among k rollouts of a task,
    alpha <- decay alpha + (1 - decay) alpha_0 + s and beta <- decay beta + (1 - decay) beta_0 + k - s. A task that was
    not played in the batch keeps its posterior.

    Args:
        prior: alpha_0 and beta_0: the posterior of a task that was never played.
        decay: from 0 to 1; with 1, older outcomes count as much as new ones.
    """

    def __init__(self, prior: tuple[float, float], decay: float) -> None:
        self.prior, self.decay = prior, decay
        self._counts: dict[str, list[float]] = {}  # key -> [alpha, beta]

    def of(self, key: str) -> tuple[float, float]:
        """alpha and beta of a task."""
        alpha, beta = self._counts.get(key, self.prior)
        return alpha, beta

    def mean(self, key: str) -> float:
        """The mean of the posterior of a task's success rate."""
        alpha, beta = self.of(key)
        return alpha / (alpha + beta)

    def observe(self, graph: StepGraph) -> None:
        """Count the outcomes of a batch."""
        found: dict[str, list[int]] = {}  # key -> [successes, failures]
        for key, won in outcomes(graph):
            found.setdefault(key, [0, 0])[0 if won else 1] += 1
        for key, counts in found.items():
            before = zip(self.of(key), self.prior, counts, strict=True)
            self._counts[key] = [self.decay * x + (1 - self.decay) * x_0 + n for x, x_0, n in before]

    def state_dict(self) -> dict[str, Any]:
        """The counts of every task that was played."""
        return {key: list(counts) for key, counts in sorted(self._counts.items())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The counterpart of `state_dict`."""
        self._counts = {key: [float(x) for x in counts] for key, counts in state.items()}
