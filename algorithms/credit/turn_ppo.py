"""Generalised advantage estimation over turns.

Formula: `A_k = delta_k + gamma lam A_{k+1}`, `delta_k = r_k + gamma V_{k+1} - V_k` over turns.

Source: turn-PPO, arXiv:2512.17008 (EACL 2026 Findings); no public code. A turn is one action. V_k is the critic's value
after the tokens of the state and before those of the action. The released GAE over turns of other methods (VAGEN,
HiPER) does not bootstrap a truncated episode by default, which is `bootstrap=none`. By default here, the value after a
truncated last row is the column `next_value`; if there is no next observation, `next_value` is the value before
the cut turn or 0, as `critic.cut_value` says. After a terminated last row the value is 0, and an episode whose last row
is neither terminated nor truncated counts as terminated. The paper states no normalisation. `whiten=true` normalises
over turns, as HiPER does (which divides by the population deviation); VAGEN whitens over tokens, so that long turns
have more weight. `preset=official` sets bootstrap=none and whiten=true. `return`, the critic's target, is never
whitened. With `whiten`, the called chains of a program's episode count once
together (`agentrl.graph.step_votes`).
"""

from types import MappingProxyType
from typing import Literal

import numpy as np
from pydantic import Field

from agentrl.credit import Credit, Options, where
from agentrl.graph import StepGraph, following, gae, step_votes, whiten

PAPER = "turn-PPO, arXiv:2512.17008"
NEEDS = ("value",)


class Config(Options, frozen=True):
    """gamma: discount per turn. lam: decay of GAE per turn. whiten: bring the advantages of all turns of an agent to
    mean 0 and standard deviation 1. preset: official sets bootstrap=none and whiten=true."""

    OFFICIAL = MappingProxyType({"bootstrap": "none", "whiten": True})

    gamma: float = Field(0.99, ge=0, le=1)
    lam: float = Field(0.9, ge=0, le=1)
    bootstrap: Literal["value", "none"] = "value"
    whiten: bool = False


def bootstrap_value(graph: StepGraph, bootstrap: str, needed_by: str) -> np.ndarray:
    """[N] value of the state after an episode's last row: `next_value` if truncated, else 0; 0 on other rows.

    Raises:
        ValueError: a truncated last row has no `next_value`.
    """
    cut = graph.last & graph.truncated  # [N]
    if bootstrap != "value" or not cut.any():
        return np.zeros(len(graph))
    next_value = graph.columns.get("next_value", np.full(len(graph), np.nan))  # [N]
    absent = cut & np.isnan(next_value)  # [N]
    if absent.any():
        raise ValueError(
            f"{where(graph, int(np.argmax(absent)))}: next_value: {needed_by} needs the value after a "
            "truncated episode: give it, or say terminated"
        )
    return np.where(cut, next_value, 0.0)


def credit(graph: StepGraph, config: Config) -> Credit:
    """A_k = delta_k + gamma lam A_{k+1}, delta_k = r_k + gamma V_{k+1} - V_k."""
    value = graph.column("value")  # [N]
    after = following(value, graph.parent, bootstrap_value(graph, config.bootstrap, "turn_ppo"))  # [N]
    advantage = gae(graph.reward, value, after, graph.parent, config.gamma, config.lam)  # [N]
    returns = advantage + value  # [N]
    if config.whiten:
        advantage = whiten(advantage, step_votes(graph, graph.agent), key=graph.agent)
    return Credit.of(advantage, returns=returns, parts={"return": returns})
