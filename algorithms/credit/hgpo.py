"""Hierarchy-of-groups policy optimisation: step returns compared at every length of shared history.

Formula: `A = sum over k of w_k GN(G | group, last k states)`, `w_k` proportional to `(k + 1)^weight_power`.

Source: HGPO, arXiv:2602.22817. For k = 1..history+1, steps of a group whose last k states are equal form a group; a_k
is the normalised step return there; A = sum_k w_k a_k with w_k proportional to (k + 1)^weight_power. Official code
(verl-agent recipe): population std, groups of one dropped, no episode term unless asked, invalid actions cost 0.1. A
level whose a_k is exactly 0 is left out, so that A is the weighted mean of the other levels. Default here: the same
without the penalty. A difference from the mean within rounding is 0 here, where the float32 code leaves it in; the
released weights carry eps in their denominator, which moves A by less than 1e-6.
"""

from types import MappingProxyType

import numpy as np
from pydantic import Field

from agentrl.algorithms.credit import gigpo, grpo
from agentrl.credit import Credit, Options
from agentrl.graph import Singleton, Std, StepGraph, context_key, depth, group_norm, keys

PAPER = "HGPO, arXiv:2602.22817"
NEEDS = ("state",)


class Config(Options, frozen=True):
    """weight_power: level k, the k-th length of shared history, weighs (k + 1) to this power. history: states before
    the current one that are compared. episode_term: adds level 0, GRPO over step rows with sample std (no division if
    std=none). singleton: what a group of one gets in that term.
    """

    OFFICIAL = MappingProxyType({"invalid_penalty": 0.1, "singleton": "pass"})

    gamma: float = Field(0.95, ge=0, le=1)
    history: int = Field(2, ge=0)
    weight_power: float = 1.0
    std: Std = "population"
    eps: float = Field(1e-6, ge=0)
    episode_term: bool = False
    singleton: Singleton = "zero"
    invalid_penalty: float = Field(0.0, ge=0)


def credit(graph: StepGraph, config: Config) -> Credit:
    """Weighted mean over the levels at which a step differs from its group."""
    returns = gigpo.step_return(graph, config.gamma, config.invalid_penalty)  # [N]
    position = depth(graph.parent)  # [N]
    total, weights = np.zeros(len(graph)), np.zeros(len(graph))  # [N]
    for k in range(config.history + 2):
        a = level(graph, config, k, returns) * (position >= k - 1)  # [N]
        total += (k + 1) ** config.weight_power * a
        weights += (k + 1) ** config.weight_power * (a != 0)
    return Credit.of(total / np.where(weights > 0, weights, 1.0))


def level(graph: StepGraph, config: Config, k: int, returns: np.ndarray) -> np.ndarray:
    """[N] advantage among steps that share k states; level 0 is the episode term."""
    if k:
        key = keys(graph.peers, context_key(graph.state, graph.parent, k))  # [N]
        return group_norm(returns, key, std=config.std, eps=config.eps, weight=graph.weight)
    if not config.episode_term:
        return np.zeros(len(graph))
    episode = grpo.Config(
        std="none" if config.std == "none" else "sample",
        unit="step",
        singleton=config.singleton,
        eps=config.eps,
        invalid_penalty=config.invalid_penalty,
    )
    return grpo.episode_advantage(graph, episode)
