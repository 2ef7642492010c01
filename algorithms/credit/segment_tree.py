"""Segment advantages from a sampled tree.

Formula: `A = V(node) - V(parent)`, `V(node) = mean of V(child) over the children`.

Source: SPO (segment policy optimisation), tree form, arXiv:2505.23564. Every row is a segment. The value of a leaf is
its reward. The value of an inner node is the mean over its *children*, not over its leaves; its own reward does not
count. With `std=population`, A is divided by the population standard deviation of the siblings plus eps. Rows of one
`tree` without a parent are siblings under the prompt. The released code (AIFrameResearch/SPO) has the forms with and
without this division. It leaves edges of advantage 0 out of training, which only changes the number of tokens that the
loss is divided by; this is not done here.
"""

import numpy as np
from pydantic import Field

from agentrl.credit import Credit, Options
from agentrl.graph import Std, StepGraph, group_norm, keys, tree_up

PAPER = "SPO (segments, tree form), arXiv:2505.23564"
NEEDS = ("tree",)
ON = "nodes"


class Config(Options, frozen=True):
    """std: divide the differences between siblings by their sample or population standard deviation, or by nothing
    (none), which the released code calls rloo. preset: has no effect on this method."""

    std: Std = "none"
    eps: float = Field(1e-8, ge=0)


def credit(graph: StepGraph, config: Config) -> Credit:
    """A node against the mean of its siblings, which is its parent's value."""
    value = tree_up(graph.reward, graph.parent)  # [N]
    prompt = keys(graph.peers, graph.tree)  # [N]
    siblings = keys(np.where(graph.parent >= 0, graph.parent, -1 - prompt))  # [N]
    return Credit.of(group_norm(value, siblings, std=config.std, eps=config.eps), parts={"value": value})
