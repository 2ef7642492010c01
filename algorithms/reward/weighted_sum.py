"""One reward from several named signals: their weighted sum.

Source: the common practice that MO-GRPO and GDPO argue against; here so that it can be compared with them.
"""

from collections.abc import Mapping

import numpy as np
from pydantic import BaseModel, Field


class Config(BaseModel, frozen=True, extra="forbid"):
    """weights: of each signal, 1 where a signal is not named."""

    weights: dict[str, float] = Field(default_factory=dict)


def reward(signals: Mapping[str, np.ndarray], group: np.ndarray, config: Config) -> np.ndarray:
    """[E] sum of weight * signal. `group` is not used.

    Raises:
        ValueError: a weight names no signal, or there are no signals.
    """
    return sum_of(signals, config.weights)


def sum_of(signals: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> np.ndarray:
    """[E] sum of weight * signal."""
    unknown = sorted(set(weights) - set(signals))
    if unknown or not signals:
        raise ValueError(f"weights name {unknown}, the signals are {sorted(signals)}: name signals that exist")
    total: np.ndarray = np.sum(
        [weights.get(name, 1.0) * np.asarray(x, np.float64) for name, x in signals.items()], axis=0
    )
    return total
