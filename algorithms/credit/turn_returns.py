"""Discounted turn returns, normalised among the turns of a group.

Formula: `A = GN(G | key) + episode_weight * GN(score | group)`, `G_k = r_k + gamma G_{k+1}`.

Source: Group Turn Policy Optimisation, arXiv:2511.14846 (gamma 0.9; over all turns of the group, `key=group`,
or per turn index, `key=group+turn`: the text leaves it open). EAPO (IterResearch), arXiv:2511.07327: the
geometric discount of the outcome over rounds, key=group. Step-GRPO (R1-Router): key=group+turn. UI-S1
(X-PLUG/MobileAgent), whose official code is `preset=official`: gamma 0.5, key=group+turn, the return is cut
where an action did not match the expert (`cut=unmatched`: G_k = r_k + gamma * matched_k * matched_{k+1} *
G_{k+1}), plus the episode term over step rows, a group of one passing its score through. A step group of one
always gets 0.
"""

from types import MappingProxyType
from typing import Literal

import numpy as np
from pydantic import Field

from agentrl.algorithms.credit import grpo
from agentrl.credit import Credit, where
from agentrl.graph import StepGraph, following, group_norm, keys, scan

PAPER = "Group Turn PO, arXiv:2511.14846; UI-S1; EAPO, arXiv:2511.07327; Step-GRPO"


class Config(grpo.Config, frozen=True):
    """gamma: discount per turn. key: compare the turns of a group, or those of equal index in it. cut: end the return
    at an action that did not match the expert. unit: what the statistics of the episode term count. singleton: what a
    group of one gets in the episode term. invalid_penalty: subtracted from an invalid row's return and score, and from
    no other row's.
    """

    OFFICIAL = MappingProxyType(
        {"gamma": 0.5, "key": "group+turn", "cut": "unmatched", "episode_weight": 1.0, "singleton": "pass"}
    )

    gamma: float = Field(0.9, ge=0, le=1)
    key: Literal["group", "group+turn"] = "group"
    cut: Literal["off", "unmatched"] = "off"
    episode_weight: float = 0.0
    unit: Literal["episode", "step"] = "step"


def step_return(graph: StepGraph, config: Config) -> np.ndarray:
    """[N] return of each turn, cut or not, less the row's own penalty."""
    decay = np.full(len(graph), config.gamma)  # [N]
    if config.cut == "unmatched":
        matched = graph.column("matched", "turn_returns cut=unmatched").astype(np.float64)  # [N]
        if np.isnan(matched).any():
            at = where(graph, int(np.argmax(np.isnan(matched))))
            raise ValueError(f"{at}: matched: missing, and cut=unmatched needs it on every step")
        decay = decay * matched * following(matched, graph.parent)
    return scan(graph.reward, decay, graph.parent) - config.invalid_penalty * ~graph.valid


def credit(graph: StepGraph, config: Config) -> Credit:
    """A = GN(G | key) + episode_weight * GN(score | group)."""
    returns = step_return(graph, config)  # [N]
    key = graph.peers if config.key == "group" else keys(graph.peers, graph.turn)  # [N]
    advantage = group_norm(returns, key, std=config.std, eps=config.eps, weight=graph.weight)  # [N]
    if config.episode_weight:
        advantage = advantage + config.episode_weight * grpo.episode_advantage(graph, config)
    return Credit.of(advantage, parts={"step_return": returns})
