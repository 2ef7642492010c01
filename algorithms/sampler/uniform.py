"""Tasks drawn without replacement, epoch after epoch; from a list of more than 100,000 tasks, at random.

Formula: every task once per epoch, if the list has at most 100,000 tasks.

Source: none; common practice.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel

from agentrl.env import ENDLESS
from agentrl.graph import StepGraph
from agentrl.rollout import Draw
from agentrl.types import Task


class Config(BaseModel, frozen=True, extra="forbid"):
    """No options."""


class Sampler:
    """See `agentrl.rollout.sampler.Sampler`."""

    def __init__(self, config: Config, tasks: Sequence[Task], seed: int) -> None:
        self._tasks, self._seed, self._drawn = tasks, seed, 0
        self._order: tuple[int, np.ndarray] = (-1, np.zeros(0, np.int64))  # the latest epoch and its order

    def draw(self, count: int) -> list[Draw]:
        """The next `count` tasks."""
        indices = [self._index(self._drawn + i) for i in range(count)]
        self._drawn += count
        return [Draw(task=self._tasks[i]) for i in indices]

    def _index(self, position: int) -> int:
        n = len(self._tasks)
        if n > ENDLESS:
            return int(np.random.default_rng((self._seed, position)).integers(n))
        epoch, place = divmod(position, n)
        if self._order[0] != epoch:
            self._order = (epoch, np.random.default_rng((self._seed, epoch)).permutation(n))
        return int(self._order[1][place])

    def observe(self, graph: StepGraph) -> None:
        """Does nothing: the order of the tasks does not depend on outcomes."""

    def state_dict(self) -> Mapping[str, Any]:
        """The number of drawn tasks, as a checkpoint stores it."""
        return {"drawn": self._drawn}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the number of drawn tasks of a checkpoint."""
        self._drawn = int(state["drawn"])


def make(config: Config, tasks: Sequence[Task], seed: int) -> Sampler:
    """See `agentrl.rollout.sampler`."""
    return Sampler(config, tasks, seed)
