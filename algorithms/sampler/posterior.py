"""Prefers tasks whose success rate is near a target, as a posterior per task predicts it without extra rollouts.

Formula: play the tasks of smallest `|p - target|`, where p is drawn from `Beta(alpha, beta)` of the task.

Source: MoPPS, arXiv:2507.04632 (model predictive prompt selection). Each task has a Beta posterior of its success rate.
If s of k copies of a task succeed in a batch, alpha becomes decay alpha + (1 - decay) alpha_0 + s, and beta becomes
decay beta + (1 - decay) beta_0 + k - s; `prior` is [alpha_0, beta_0]. For a batch of n tasks, `pool` times n candidate
tasks are drawn. For each candidate, a success rate is drawn from its posterior (Thompson sampling). The n candidates
whose drawn success rates are nearest to `target` are played. A task that was seldom played has a wide posterior, so it
is chosen now and then.

Compared with the released code (recipe/ours/mopps.py): the update of the posterior, the draws and the choice of the
nearest candidates are the same. The scripts of the released code that start without stored outcomes set the discount to
0.5, which is the default of `decay` here, and draw 8 or 16 candidates per task of the batch. Two features of the
released code are not built here: the choice of tasks inside an interval (`threshold`), and the start from stored
outcomes. Departure: `pick = "mean"` takes the posterior's mean in place of a draw.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from agentrl.algorithms.sampler._history import Posterior, pool
from agentrl.graph import StepGraph
from agentrl.rollout import Draw
from agentrl.types import Task

PAPER = "MoPPS, arXiv:2507.04632"


class Config(BaseModel, frozen=True, extra="forbid"):
    """See the module.

    Attributes:
        pick: the estimate of a candidate's success rate: a draw from its posterior (thompson), or the posterior's mean
            (mean).
        target: preferred success rate, 0 to 1; at 0.5 the outcomes of a group vary most.
        decay: share of a task's earlier counts that remains when the task is played again; 1 keeps all.
        prior: alpha and beta of a task that was never played.
        pool: number of candidate tasks per task of the batch.
    """

    pick: Literal["thompson", "mean"] = "thompson"
    target: float = Field(0.5, ge=0, le=1)
    decay: float = Field(0.5, ge=0, le=1)
    prior: tuple[float, float] = (1.0, 1.0)
    pool: int = Field(8, ge=1)

    def model_post_init(self, _: Any) -> None:
        """Raises ValueError unless the prior is one of a Beta distribution."""
        if not min(self.prior) > 0:
            raise ValueError(f"prior is {list(self.prior)}: both numbers of a Beta prior must be above 0")


class Sampler:
    """See `agentrl.rollout.sampler.Sampler`."""

    def __init__(self, config: Config, tasks: Sequence[Task], seed: int) -> None:
        self._config, self._tasks, self._seed, self._batch = config, tasks, seed, 0
        self.posterior = Posterior(config.prior, config.decay)

    def draw(self, count: int) -> list[Draw]:
        """The `count` candidates whose estimates are nearest to the target; candidates repeat if there are too few."""
        rng = np.random.default_rng((self._seed, self._batch))
        self._batch += 1
        candidates = pool(self._tasks, self._config.pool * count, rng)
        if self._config.pick == "thompson":
            success = np.array([rng.beta(*self.posterior.of(task.key)) for task in candidates])  # [C]
        else:
            success = np.array([self.posterior.mean(task.key) for task in candidates])  # [C]
        order = np.argsort(np.abs(success - self._config.target), kind="stable")  # [C]
        return [Draw(task=candidates[int(order[i % len(order)])]) for i in range(count)]

    def observe(self, graph: StepGraph) -> None:
        """Count the outcomes of the batch's episodes per task."""
        self.posterior.observe(graph)

    def state_dict(self) -> Mapping[str, Any]:
        """The counts, as a checkpoint stores them."""
        return {"batch": self._batch, "counts": self.posterior.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the counts of a checkpoint."""
        self._batch = int(state["batch"])
        self.posterior.load_state_dict(state["counts"])


def make(config: Config, tasks: Sequence[Task], seed: int) -> Sampler:
    """See `agentrl.rollout.sampler`."""
    return Sampler(config, tasks, seed)
