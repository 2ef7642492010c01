"""Segment advantages from a sampled tree.

Formula: `A = V(node) - V(parent)`, `V(node) = mean of V(child) over the children`.

Source: SPO (segment policy optimisation), tree form, arXiv:2505.23564. Every row is a segment; a leaf's value
is its reward, an inner node's the mean over its *children* (not over leaves); A = V(node) - V(parent), and
with `std=population` that over the population std of the siblings + eps. Rows without a parent in one `tree`
are siblings under the prompt. Official code (AIFrameResearch/SPO): both forms; it then drops edges of
advantage 0 from training, which changes the token count of the loss and nothing else, and is not done here.
Rewards of inner nodes do not count.
"""

import numpy as np
from pydantic import Field

from agentrl.credit import Credit, Options
from agentrl.graph import Std, StepGraph, group_norm, keys, tree_up

PAPER = "SPO (segments, tree form), arXiv:2505.23564"
NEEDS = ("tree",)
ON = "nodes"


class Config(Options, frozen=True):
    """std: standard deviation of the siblings that divides; none is the form that the official code calls rloo."""

    std: Std = "none"
    eps: float = Field(1e-8, ge=0)


def credit(graph: StepGraph, config: Config) -> Credit:
    """A node against the mean of its siblings, which is its parent's value."""
    value = tree_up(graph.reward, graph.parent)  # [N]
    prompt = keys(graph.peers, graph.tree)  # [N]
    siblings = keys(np.where(graph.parent >= 0, graph.parent, -1 - prompt))  # [N]
    return Credit.of(group_norm(value, siblings, std=config.std, eps=config.eps), parts={"value": value})
