"""The sampling temperature of each step, which engine and trainer use alike."""

import numpy as np

from agentrl.graph import StepGraph


def step_temperatures(graph: StepGraph, recipe: float) -> float | np.ndarray:
    """The temperature at which the steps were sampled.

    Args:
        graph: a graph that may have a column `temperature` [N]; it is NaN on steps sampled at the recipe's temperature.
        recipe: `sampling.temperature`; 0 (greedy) counts as 1, as in the engine.

    Returns:
        One number if the graph has no such column, else [N] float64.
    """
    if not graph.has("temperature"):
        return recipe or 1.0
    own = graph.column("temperature")  # [N]
    return np.where(np.isnan(own), recipe or 1.0, own)
