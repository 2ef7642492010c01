"""Rewards normalised among the steps that play the same role: same prompt, turn, agent.

Source: AT-GRPO, arXiv:2510.11062, key group, turn, agent: at each turn every agent samples candidates from
one state and each is scored on its own. mmGRPO (multi-module programs), arXiv:2508.04660: key group, agent,
invocation, where `invocation` counts the calls of an agent inside a rollout. The row's own `reward` is
normalised. Official code (PettingLLMs): sample std, eps 1e-6, a group of one gets 0 unless every group of the
batch is a group of one, which then pass their rewards through; here `singleton` says it, for all groups
alike. Candidates that were not executed (`rollout.name=candidates`) are rows of their turn; with several
chains a task, AT-GRPO's environment is the chain, key tree,turn,agent.
"""

from typing import Any

import numpy as np
from pydantic import Field, field_validator

from agentrl.credit import Credit, Options
from agentrl.graph import Singleton, Std, StepGraph, group_norm, keys

CANDIDATES = True
PAPER = "AT-GRPO, arXiv:2510.11062; mmGRPO, arXiv:2508.04660"
ROLES = ("group", "rollout", "turn", "agent", "policy", "state", "tree", "invocation")


class Config(Options, frozen=True):
    """key: columns that make a role, as group,turn,agent."""

    key: tuple[str, ...] = ("group", "turn", "agent")
    std: Std = "sample"
    singleton: Singleton = "zero"
    eps: float = Field(1e-6, ge=0)

    @field_validator("key", mode="before")
    @classmethod
    def _split(cls, key: Any) -> Any:
        names = key.replace("+", ",").split(",") if isinstance(key, str) else key
        unknown = [name for name in names if name not in ROLES]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is no role column, known are {', '.join(ROLES)}")
        return names


def invocation(graph: StepGraph) -> np.ndarray:
    """[N] how many episodes of the same agent came before this one in its rollout, in the graph's order."""
    first = np.flatnonzero(graph.first)  # [E]
    role = keys(graph.rollout, graph.agent)[first]  # [E]
    order = np.argsort(role, kind="stable")  # [E]
    start = np.searchsorted(role[order], role[order])  # [E] where each role's run starts
    rank = np.empty(len(first), np.int64)
    rank[order] = np.arange(len(first)) - start
    on_rows: np.ndarray = rank[np.cumsum(graph.first) - 1]  # [N]
    return on_rows


def credit(graph: StepGraph, config: Config) -> Credit:
    """GN(reward | role)."""
    columns = [invocation(graph) if name == "invocation" else graph.column(name) for name in config.key]
    advantage = group_norm(
        graph.reward,
        keys(*columns),
        std=config.std,
        eps=config.eps,
        singleton=config.singleton,
        weight=graph.weight,
    )  # [N]
    return Credit.of(advantage)
