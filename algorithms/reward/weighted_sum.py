"""One reward from several named signals: their weighted sum, step by step.

Source: the common practice that MO-GRPO and GDPO argue against; here so that it can be compared with them.
A signal may be reported on every step or at the end alone; where a step does not report it, it adds nothing.
"""

from collections.abc import Mapping

import numpy as np
from pydantic import BaseModel, Field

from agentrl.credit import filled, signal
from agentrl.graph import StepGraph


class Config(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """weights: of each signal; 0 makes it a mere metric, `env_reward` is the environment's own reward."""

    weights: dict[str, float] = Field(min_length=1)


def reward(graph: StepGraph, config: Config) -> np.ndarray:
    """[N] sum of weight * signal.

    Raises:
        ValueError: a weight names no signal.
    """
    return total({name: filled(signal(graph, name)) for name in config.weights}, config.weights)


def total(signals: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> np.ndarray:
    """[E] sum of weight * signal, of equally long arrays."""
    summed: np.ndarray = np.sum([weights[name] * np.asarray(x, np.float64) for name, x in signals.items()], axis=0)
    return summed
