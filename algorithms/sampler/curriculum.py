"""Prefers tasks that are neither solved nor hopeless: the weight of a task is sqrt(v (1 - v)) + floor, where v is its
estimated success rate.

Formula: `weight = sqrt(v (1 - v)) + floor`, where v is the estimated success rate of the task's bin.

Source: the prompt sampling weight of SPO, arXiv:2509.13232 (section on prioritised sampling). Here v is one estimate
per difficulty bin, (successes + 0.5) / (episodes + 1), and the counts of earlier batches shrink by the factor `decay`
per batch. The bin of a task is the part of its key before the last `/`, so the sampler also works with endless lists of
tasks. If no key has a `/`, all tasks are in one bin, and the sampling is uniform.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from agentrl.algorithms.sampler._history import outcomes, pool
from agentrl.graph import StepGraph
from agentrl.rollout import Draw
from agentrl.types import Task


class Config(BaseModel, frozen=True, extra="forbid"):
    """See the module.

    Attributes:
        floor: number that is added to the weight of every bin.
        decay: factor by which the counts of earlier batches shrink per batch; 1 keeps them.
        pool: number of candidate tasks per task of the batch.
    """

    floor: float = Field(0.05, gt=0)
    decay: float = Field(0.9, ge=0, le=1)
    pool: int = Field(8, ge=1)


def bin_of(key: str) -> str:
    """The difficulty bin of a task key."""
    return key.rpartition("/")[0]


class Sampler:
    """See `agentrl.rollout.sampler.Sampler`."""

    def __init__(self, config: Config, tasks: Sequence[Task], seed: int) -> None:
        self._config, self._tasks, self._seed, self._batch = config, tasks, seed, 0
        self._counts: dict[str, list[float]] = {}  # bin -> [successes, failures]

    def weight(self, key: str) -> float:
        """The sampling weight of a task's bin."""
        won, lost = self._counts.get(bin_of(key), [0.0, 0.0])
        v = (won + 0.5) / (won + lost + 1.0)
        return float(np.sqrt(v * (1 - v))) + self._config.floor

    def draw(self, count: int) -> list[Draw]:
        """`count` tasks out of `pool * count` candidates, by weight; without repeats if there are enough candidates."""
        rng = np.random.default_rng((self._seed, self._batch))
        self._batch += 1
        candidates = pool(self._tasks, self._config.pool * count, rng)
        wanted = len(candidates)
        weights = np.array([self.weight(task.key) for task in candidates])
        fits = wanted >= count
        chosen = rng.choice(wanted, size=count, replace=not fits, p=weights / weights.sum())
        return [Draw(task=candidates[i]) for i in chosen]

    def observe(self, graph: StepGraph) -> None:
        """Shrink the earlier counts, and count the outcomes of the batch per bin."""
        for counts in self._counts.values():
            counts[:] = [self._config.decay * c for c in counts]
        for key, won in outcomes(graph):
            counts = self._counts.setdefault(bin_of(key), [0.0, 0.0])
            counts[0 if won else 1] += 1.0

    def state_dict(self) -> Mapping[str, Any]:
        """The counts, as a checkpoint stores them."""
        return {"batch": self._batch, "counts": {k: list(v) for k, v in sorted(self._counts.items())}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the counts of a checkpoint."""
        self._batch = int(state["batch"])
        self._counts = {k: list(v) for k, v in state["counts"].items()}


def make(config: Config, tasks: Sequence[Task], seed: int) -> Sampler:
    """See `agentrl.rollout.sampler`."""
    return Sampler(config, tasks, seed)
