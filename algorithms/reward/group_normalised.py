"""One reward from several signals, each normalised inside its group before they are added.

Source: MO-GRPO, arXiv:2509.22047 (each signal by its own mean and std, so that no signal wins by its
variance), and GDPO, arXiv:2601.05242, which whitens the sum over the whole batch afterwards (`batch=true`),
so that the scale does not grow with the number of signals. The result is an advantage already: use it as the
score of grpo with std=none, or as it is. With one signal and no batch normalisation it is GRPO.
"""

from collections.abc import Mapping

import numpy as np
from pydantic import BaseModel, Field

from agentrl.algorithms.reward.weighted_sum import sum_of
from agentrl.segments import Std, group_norm, keys, whiten


class Config(BaseModel, frozen=True, extra="forbid"):
    """weights: of each normalised signal, 1 where a signal is not named. batch: GDPO's whitening of the
    sum."""

    weights: dict[str, float] = Field(default_factory=dict)
    std: Std = "sample"
    eps: float = Field(1e-6, ge=0)
    batch: bool = False


def reward(signals: Mapping[str, np.ndarray], group: np.ndarray, config: Config) -> np.ndarray:
    """[E] weighted sum of the signals' group-normalised values. `group` [E] tells the copies of one task.

    Raises:
        ValueError: a weight names no signal, or there are no signals.
    """
    key = keys(group)  # [E]
    normal = {name: group_norm(x, key, std=config.std, eps=config.eps) for name, x in signals.items()}
    total = sum_of(normal, config.weights)  # [E]
    return whiten(total) if config.batch else total
