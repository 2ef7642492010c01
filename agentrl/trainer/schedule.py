"""The schedule of the learning rate."""

import math

from agentrl.trainer.sections import OptimConfig


def rate_of(optim: OptimConfig, updates: int, total_updates: int, spent: float) -> float:
    """The factor by which the configured learning rates are multiplied in an update, from 0 to 1.

    Args:
        optim: section [optim].
        updates: number of updates of this stage that are done.
        total_updates: number of updates of this stage.
        spent: share of the run's budget that is used up.
    """
    if updates < optim.warmup:
        return (updates + 1) / (optim.warmup + 1)
    if optim.schedule == "constant":
        return 1.0
    span = max(1, total_updates - optim.warmup)
    progress = max(spent, (updates - optim.warmup) / span)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
