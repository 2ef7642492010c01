"""Gives the copies of a batch to the tasks where they are worth most: a knapsack of value and cost per task.

Formula: maximise `sum over tasks of (1 - p^N - (1 - p)^N) p (1 - p)^2` over the copies N, at a fixed total cost.

Source: Knapsack RL, arXiv:2509.25849. A task of success p that is played N times is worth the probability that its
group varies, 1 - p^N - (1 - p)^N, times the gain of an update on it, p (1 - p)^2. The copies N of all tasks are chosen
so that their total value is largest and their total cost is that of `batch.copies` copies of every task.

The batch begins with `first` copies per task. Then p is the mean of a Beta posterior (`_history.Posterior`) of the
earlier batches and of this first wave, and the rest is spent by dynamic programming over the tasks.

The value was compared with the released code (verl/trainer/ppo/exploration_utils.py) and is the same.

Departures: the paper's estimate is the success rate of the epoch before, which is 0 or 1 for many tasks and needs an
extra rule for these; a posterior mean is never 0 or 1. `unit = "tokens"` counts a copy of a task by the tokens that
the first wave's copies of it sampled, in steps of 1/8 of the mean task; the paper's copies cost 1. In the released code
the first further copy of a task has the value of all its copies; here a copy has the value that it adds. The released
code has a rule that gives the remaining copies to tasks that were never or always solved; it is not needed here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from agentrl.algorithms.sampler import uniform
from agentrl.algorithms.sampler._history import Posterior
from agentrl.graph import StepGraph, token_rows
from agentrl.rollout import Draw
from agentrl.types import Task

PAPER = "Knapsack RL, arXiv:2509.25849"
UNEVEN = True
STEPS = 8  # cost units of a copy of the mean task, with unit = "tokens"


class Config(BaseModel, frozen=True, extra="forbid"):
    """See the module.

    Attributes:
        first: copies per task in the first wave, at most batch.copies.
        max_copies: most copies per task.
        unit: what a copy costs: one (copies), or what the copies of the first wave sampled (tokens).
        decay: share of the old counts that a task keeps when it is played again; 1 never forgets.
        prior: alpha and beta of a task that was never played.
    """

    first: int = Field(2, ge=1)
    max_copies: int = Field(128, ge=1)
    unit: Literal["copies", "tokens"] = "copies"
    decay: float = Field(0.9, ge=0, le=1)
    prior: tuple[float, float] = (1.0, 1.0)

    def model_post_init(self, _: Any) -> None:
        """Raises ValueError unless the prior is one of a Beta distribution, and max_copies is at least `first`."""
        if not min(self.prior) > 0:
            raise ValueError(f"prior is {list(self.prior)}: both numbers of a Beta prior must be above 0")
        if self.max_copies < self.first:
            raise ValueError(
                f"max_copies is {self.max_copies} and first is {self.first}: raise max_copies, or lower first"
            )


class Sampler(uniform.Sampler):
    """Uniform tasks; an `agentrl.rollout.sampler.Allocator` of their copies."""

    def __init__(self, config: Config, tasks: Sequence[Task], seed: int) -> None:
        super().__init__(uniform.Config(), tasks, seed)
        self._config = config
        self.posterior = Posterior(config.prior, config.decay)

    def draw(self, count: int) -> list[Draw]:
        """The next `count` tasks, with the copies of the first wave."""
        return [Draw(task=draw.task, copies=self._config.first) for draw in super().draw(count)]

    def further(self, draws: Sequence[Draw], graph: StepGraph, left: int) -> list[int]:
        """The copies beyond the first wave that make the batch worth most."""
        seen = Posterior(self._config.prior, self._config.decay)
        seen.load_state_dict(self.posterior.state_dict())
        seen.observe(graph)
        p = np.array([seen.mean(draw.task.key) for draw in draws])  # [tasks]
        first, cost = self._config.first, self._costs(draws, graph)
        most = min(self._config.max_copies, first + left)
        value = worth(p[:, None], np.arange(first, most + 1))  # [tasks, copies]
        extra = best_copies(value - value[:, :1], cost, left * (STEPS if self._config.unit == "tokens" else 1))
        return within(extra, left)

    def _costs(self, draws: Sequence[Draw], graph: StepGraph) -> np.ndarray:
        """[tasks] int64, cost units of a copy."""
        if self._config.unit == "copies" or graph.tokens is None:
            return np.ones(len(draws), np.int64)
        tokens = np.bincount(token_rows(graph.tokens), graph.tokens.sampled, minlength=len(graph))  # [N]
        spent: dict[str, float] = {}
        for name, count in zip(graph.group.tolist(), tokens.tolist(), strict=True):
            key = graph.names["group"][name]
            spent[key] = spent.get(key, 0.0) + count
        mean = max(1.0, float(np.mean([*spent.values()]))) if spent else 1.0
        own = np.array([spent.get(draw.task.key, mean) for draw in draws])  # [tasks]
        return np.maximum(1, np.rint(STEPS * own / mean)).astype(np.int64)

    def observe(self, graph: StepGraph) -> None:
        """Count the outcomes of the tasks, of both waves."""
        self.posterior.observe(graph)

    def state_dict(self) -> Mapping[str, Any]:
        """The counts, as a checkpoint stores them."""
        return {**super().state_dict(), "counts": self.posterior.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the counts of a checkpoint."""
        super().load_state_dict(state)
        self.posterior.load_state_dict(state["counts"])


def worth(p: np.ndarray, copies: np.ndarray) -> np.ndarray:
    """The value of playing a task of success `p` `copies` times: see the module."""
    varied = 1 - p**copies - (1 - p) ** copies
    value: np.ndarray = varied * p * (1 - p) ** 2
    return value


def best_copies(value: np.ndarray, cost: np.ndarray, budget: int) -> np.ndarray:
    """The further copies [tasks] of largest total value whose total cost is at most the budget.

    Args:
        value: [tasks, n] of 0, 1, ... further copies of each task; 0 copies are worth 0 and cost nothing.
        cost: [tasks] int64 >= 1, of one copy.
        budget: in the units of `cost`.

    Returns:
        [tasks] int64; of equal totals, the one with fewer copies of the later tasks.
    """
    tasks, options = value.shape
    best = np.zeros(budget + 1)  # [budget + 1] largest value of the tasks so far, by what is spent at most
    chosen = np.zeros((tasks, budget + 1), np.int32)
    for task in range(tasks):
        before, best = best, best.copy()
        for copies in range(1, options):
            spent = copies * int(cost[task])
            if spent > budget:
                break
            total = before[: budget + 1 - spent] + value[task, copies]
            better = total > best[spent:] + 1e-15
            best[spent:][better] = total[better]
            chosen[task, spent:][better] = copies
    extra, room = np.zeros(tasks, np.int64), budget
    for task in reversed(range(tasks)):
        extra[task] = chosen[task, room]
        room -= int(extra[task] * cost[task])
    return extra


def within(extra: np.ndarray, left: int) -> list[int]:
    """The further copies, cut to `left` chains in all: cheap tasks can take more copies than the batch has."""
    cut = np.minimum(np.cumsum(extra), left)
    return [int(copies) for copies in np.diff(cut, prepend=0)]


def make(config: Config, tasks: Sequence[Task], seed: int) -> Sampler:
    """See `agentrl.rollout.sampler`."""
    return Sampler(config, tasks, seed)
