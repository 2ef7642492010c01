"""Uniform tasks; further tasks are played in place of groups whose scores do not vary, from which nothing is learnt.

Formula: a group stays in the batch if its scores vary.

Source: dynamic sampling, DAPO, arXiv:2503.14476, Eq. 11. The batch keeps its size: if more groups vary than the batch
holds, the surplus groups are not used. If too few groups vary after `max_rounds` rounds, groups of the last round that
do not vary fill the batch. The metric `groups_dropped` counts the groups that were played and are not in the batch, and
`groups_filled` the groups that fill it.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, Field

from agentrl.algorithms.sampler import uniform
from agentrl.graph import StepGraph, moments
from agentrl.types import Task


class Config(BaseModel, frozen=True, extra="forbid"):
    """max_rounds: largest number of rounds of rollouts; after them the batch is filled with groups that do not vary."""

    max_rounds: int = Field(10, ge=1)


def make(config: Config, tasks: Sequence[Task], seed: int) -> uniform.Sampler:
    """See `agentrl.rollout.sampler`."""
    return uniform.Sampler(uniform.Config(), tasks, seed)


def keep(config: Config, graph: StepGraph) -> np.ndarray:
    """[N] bool, rows of groups whose episode scores vary; episodes that ended with a fault do not count.

    Scores are compared per agent: the rows of an agent in a group are True if the scores of the agent's episodes in
    this group vary. An episode of a program counts once, whatever the number of its chains.
    """
    votes = (graph.first & graph.counted & ~graph.failed()).astype(np.float64)  # [N]
    return ~moments(graph.score, graph.peers, votes).constant
