"""Prefers tasks whose success is near a target, by a posterior per task that costs no rollouts.

Formula: play the tasks of smallest `|p - target|`, p drawn from `Beta(alpha, beta)` of the task.

Source: MoPPS, arXiv:2507.04632 (model predictive prompt selection). Each task has a Beta posterior of its success,
updated from the batches that it was in (`_history.Posterior`). For a batch, `pool` times as many candidates are drawn;
of each a success rate is drawn from its posterior (Thompson sampling), and the tasks whose draws lie nearest to
`target` are played. A task that was seldom played has a wide posterior, so that it is tried now and then.

Compared with the released code (recipe/ours/mopps.py): update, draws and the choice of the nearest are the same; its
scripts that start without stored outcomes set the discount to 0.5, which is the default of `decay` here, and 8 or 16
candidates per task. Two features are not built: the choice of tasks inside an interval (`threshold`), and the start
from stored outcomes. Departure: `pick = "mean"` takes the posterior's mean in place of a draw.
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
        pick: draw each candidate's success from its posterior (thompson), or take the posterior's mean.
        target: the success that is preferred, 0 to 1; at 0.5 the outcomes of a group vary most.
        decay: share of the old counts that a task keeps when it is played again; 1 never forgets.
        prior: alpha and beta of a task that was never played.
        pool: candidate tasks per task of the batch.
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
        """The `count` candidates whose success is nearest to the target; candidates repeat if there are not enough."""
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
        """Count the outcomes of the tasks."""
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
