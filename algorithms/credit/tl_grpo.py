"""Turn scores compared among actions sampled from the same state, plus half the outcome's advantage.

Formula: `A = GN(r | turn of the tree) + outcome_weight * GN(outcome | group)`.

Source: TL-GRPO, arXiv:2601.16480 (abstract and a third party's code): at every turn a group of actions is
sampled from one state and each is scored at once; A = GN(reward | turn of the tree), population std, +
outcome_weight * GN(outcome | group). In the paper's tasks the environment is in the same state at every turn, so that
a group is a turn of a tree and not a state, and a trajectory is worth its best turn's reward, not their sum. A group
of one keeps only the outcome part. Candidates that were not executed (`rollout.name=candidates`) are part of their
turn's comparison and have no outcome. If a rollout plays plain chains, each chain is a tree of its own, so that only
`key=state` compares steps of several chains.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from agentrl.algorithms.credit.grpo import votes
from agentrl.credit import Credit, Options, where
from agentrl.graph import PLAYED, Singleton, Std, StepGraph, group_max, group_norm, keys

PAPER = "TL-GRPO, arXiv:2601.16480"
CANDIDATES = True


class Config(Options, frozen=True):
    """key: which steps are compared: those of one tree at one turn, or those of a group from one state at any turn.
    outcome_weight: weight of the outcome term.
    outcome: the episode's best turn reward, or its score. std: standard deviation that divides both terms. singleton:
    what a group of one episode gets in the outcome term."""

    key: Literal["turn", "state"] = "turn"
    outcome: Literal["best", "score"] = "best"
    outcome_weight: float = 0.5
    std: Std = "population"
    singleton: Singleton = "zero"
    eps: float = Field(1e-6, ge=0)


def compared(graph: StepGraph, config: Config) -> np.ndarray:
    """[N] int64, equal for steps whose rewards are compared.

    Raises:
        ValueError: key=state, and a step has no state.
    """
    if config.key == "turn":
        return keys(graph.peers, graph.tree, graph.turn)
    absent = graph.state < 0  # [N]
    if absent.any():
        raise ValueError(f"{where(graph, int(np.argmax(absent)))}: state: tl_grpo key=state needs it on every step")
    return keys(graph.peers, graph.state)


def credit(graph: StepGraph, config: Config) -> Credit:
    """A = GN(reward | key) + outcome_weight * GN(outcome | group)."""
    worth = graph.score if config.outcome == "score" else group_max(graph.reward, keys(graph.episode))  # [N]
    turn = group_norm(graph.reward, compared(graph, config), std=config.std, eps=config.eps, weight=graph.weight)  # [N]
    played = graph.kind == PLAYED  # [N]
    outcome = group_norm(
        worth,
        graph.peers,
        std=config.std,
        eps=config.eps,
        singleton=config.singleton,
        weight=votes(graph, "episode") * played,
    )  # [N]
    return Credit.of(turn + config.outcome_weight * np.where(played, outcome, 0.0))
