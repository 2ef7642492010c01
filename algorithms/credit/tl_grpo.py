"""Turn scores compared among actions sampled from the same state, plus half the outcome's advantage.

Source: TL-GRPO, arXiv:2601.16480 (abstract and a third party's code): at every turn a group of actions is
sampled from one state and each is scored at once; A = GN(reward | state), population std, + outcome_weight *
GN(score | group). A state met once keeps only the outcome part. Candidates that were not executed
(`rollout.name=candidates`) are part of their state's comparison and have no outcome.
"""

import numpy as np
from pydantic import Field

from agentrl.algorithms.credit.grpo import votes
from agentrl.credit import Credit, Options
from agentrl.graph import PLAYED, Singleton, Std, StepGraph, group_norm, keys

PAPER = "TL-GRPO, arXiv:2601.16480"
NEEDS = ("state",)
CANDIDATES = True


class Config(Options, frozen=True):
    """std: of both terms. singleton: of the outcome term, over episodes."""

    outcome_weight: float = 0.5
    std: Std = "population"
    singleton: Singleton = "zero"
    eps: float = Field(1e-6, ge=0)


def credit(graph: StepGraph, config: Config) -> Credit:
    """A = GN(reward | state) + outcome_weight * GN(score | group)."""
    state = keys(graph.peers, graph.state)  # [N]
    turn = group_norm(graph.reward, state, std=config.std, eps=config.eps, weight=graph.weight)  # [N]
    played = graph.kind == PLAYED  # [N]
    outcome = group_norm(
        graph.score,
        graph.peers,
        std=config.std,
        eps=config.eps,
        singleton=config.singleton,
        weight=votes(graph, "episode") * played,
    )  # [N]
    return Credit.of(turn + config.outcome_weight * np.where(played, outcome, 0.0))
