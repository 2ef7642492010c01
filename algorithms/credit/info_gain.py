"""Turn rewards from the gain in the gold answer's probability.

Source: IGPO, arXiv:2510.14967. p_k = exp(mean log-probability of the gold answer after turn k); a turn before
the last earns p_k - p_{k-1}, the last turn its reward (the answer's F1). Paper: all turn rewards of a group
are normalised together (sample std, eps 1e-6), then A_k = sum over l >= k of gamma^(l-k) r_l. Official code:
undiscounted sums of token rewards less the group's mean at the same *token position*, no std, and a masked
position stops the sum, so that with observations masked credit does not cross turns. `preset=official` is
that form per turn: the turn's reward less the group's mean at the same turn; token positions of different
rollouts mean different things, and are not reproduced.
"""

import numpy as np
from pydantic import Field

from agentrl.credit import Credit, Options, where
from agentrl.graph import StepGraph
from agentrl.segments import following, group_norm, keys, scan

PAPER = "IGPO, arXiv:2510.14967"
READS = ("gold_logprob", "gold_logprob_start")


class Config(Options, frozen=True):
    """gamma: per turn; only the paper's form uses it."""

    gamma: float = Field(1.0, ge=0, le=1)
    eps: float = Field(1e-6, ge=0)


def turn_reward(graph: StepGraph) -> np.ndarray:
    """[N] probability gained in the turn; on an episode's last row its reward.

    Raises:
        ValueError: a log-probability is missing before the last turn, or the one before any turn is.
    """
    root = graph.parent < 0  # [N]
    after = graph.column("gold_logprob")  # [N]
    above = np.maximum(graph.parent, 0)  # [N]
    before = np.where(root, graph.column("gold_logprob_start"), after[above])  # [N]
    played_on = following(np.ones(len(graph)), graph.parent) > 0  # [N] not an episode's last row
    for name, absent in (("gold_logprob_start", np.isnan(before) & root), ("gold_logprob", np.isnan(after))):
        missing = absent & played_on  # [N]
        if missing.any():
            raise ValueError(f"{where(graph, int(np.argmax(missing)))}: {name}: missing, info_gain needs it here")
    return np.where(played_on, np.exp(after) - np.exp(before), graph.reward)


def credit(graph: StepGraph, config: Config) -> Credit:
    """Normalised rewards, then their discounted sum; official: less the mean of the same turn, no sum."""
    reward = turn_reward(graph)  # [N]
    if config.preset == "official":
        same_turn = keys(graph.group, graph.turn)  # [N]
        advantage = group_norm(reward, same_turn, std="none", weight=graph.weight)  # [N]
    else:
        normal = group_norm(reward, graph.group, eps=config.eps, weight=graph.weight)  # [N]
        advantage = scan(normal, config.gamma, graph.parent)
    return Credit.of(advantage, parts={"turn_reward": reward})
