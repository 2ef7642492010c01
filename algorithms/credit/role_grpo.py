"""Rewards normalised among the steps that play the same role: same prompt, turn, agent.

Formula: `A = GN(r | role)`.

Source: AT-GRPO, arXiv:2510.11062, key environment, turn, agent: at each turn every agent samples candidates from
one state of one environment and each is scored on its own. `key=auto`: the environment is the tree where a tree holds
several actions of an agent at one turn, as `rollout.name=candidates` fills it, so that several chains of a task, whose
states differ, are not merged; elsewhere it is the group. mmGRPO (multi-module programs), arXiv:2508.04660: key group,
agent, invocation, where `invocation` counts the calls of an agent inside a rollout. The row's own `reward` is
normalised. Official code (PettingLLMs): sample std, eps 1e-6, a group of one gets 0, unless every group of the batch is
a group of one: then each passes its reward through. Here `singleton` decides for all groups alike. Candidates that were
not executed (`rollout.name=candidates`) are rows of their turn.
"""

from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from agentrl.credit import Credit, Options
from agentrl.graph import Singleton, Std, StepGraph, count, group_max, group_norm, keys

CANDIDATES = True
PAPER = "AT-GRPO, arXiv:2510.11062; mmGRPO, arXiv:2508.04660"
ROLES = ("group", "rollout", "turn", "agent", "policy", "state", "tree", "invocation")


class Config(Options, frozen=True):
    """key: auto, or the columns that make a role, such as group,turn,agent."""

    key: Literal["auto"] | tuple[str, ...] = "auto"
    std: Std = "sample"
    singleton: Singleton = "zero"
    eps: float = Field(1e-6, ge=0)

    @field_validator("key", mode="before")
    @classmethod
    def _split(cls, key: Any) -> Any:
        if key == "auto":
            return key
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


def environment(graph: StepGraph) -> np.ndarray:
    """[N] the tree of a row where trees hold several steps of one agent and turn, -1 where they do not."""
    several = count(keys(graph.tree, graph.turn, graph.agent)) > 1  # [N]
    tree = keys(graph.tree)  # [N]
    return np.where(group_max(several.astype(np.float64), tree) > 0, tree, -1)


def role(graph: StepGraph, key: Literal["auto"] | tuple[str, ...]) -> np.ndarray:
    """[N] int64, equal for steps that play the same role."""
    if key == "auto":
        return keys(graph.group, environment(graph), graph.turn, graph.agent)
    return keys(*(invocation(graph) if name == "invocation" else graph.column(name) for name in key))


def credit(graph: StepGraph, config: Config) -> Credit:
    """GN(reward | role)."""
    advantage = group_norm(
        graph.reward,
        role(graph, config.key),
        std=config.std,
        eps=config.eps,
        singleton=config.singleton,
        weight=graph.weight,
    )  # [N]
    return Credit.of(advantage)
