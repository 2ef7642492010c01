"""Uniform tasks; further tasks are played in place of groups whose scores do not vary, from which nothing is learnt.

Formula: a group is kept iff its scores vary.

Source: dynamic sampling, DAPO, arXiv:2503.14476, Eq. 11. The batch keeps its size: surplus groups are not used, and
after `max_rounds` the batch is filled with groups that do not vary; both are counted in the metrics.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, Field

from agentrl.algorithms.sampler import uniform
from agentrl.graph import StepGraph, moments
from agentrl.types import Task


class Config(BaseModel, frozen=True, extra="forbid"):
    """max_rounds: rounds of rollouts before the batch is filled with groups that do not vary."""

    max_rounds: int = Field(10, ge=1)


def make(config: Config, tasks: Sequence[Task], seed: int) -> uniform.Sampler:
    """See `agentrl.rollout.sampler`."""
    return uniform.Sampler(uniform.Config(), tasks, seed)


def keep(config: Config, graph: StepGraph) -> np.ndarray:
    """[N] bool, rows of groups whose episode scores vary; rollouts that failed through the environment do not count.

    Scores are compared agent by agent: a task is kept if the episodes of one of its agents vary.
    """
    votes = (graph.first & ~graph.failed()).astype(np.float64)  # [N]
    return ~moments(graph.score, graph.peers, votes).constant
