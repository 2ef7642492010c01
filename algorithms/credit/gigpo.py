"""Group-in-group policy optimisation: GRPO's episode term plus a term among steps taken from the same state.

Formula: `A = GN(score | group) + step_weight * GN(G | group, state)`, `G_k = sum over l >= k of gamma^(l-k) r_l`.

Source: GiGPO, Feng et al., arXiv:2505.10978, Eq. 3 (episode), 6-7 (discounted step returns, anchor-state
groups), 8 (sum). Official code (verl-agent): statistics of the episode term count step rows, not episodes; a
group of one passes its score through; invalid actions cost 0.1, locally: the penalty is not discounted into
earlier steps. `preset=official` takes these. Two details of the official code are not reproduced on purpose: it copies
rows to fill a batch before the statistics, and its float32 sums leave noise in constant groups, which give exactly 0
here. Truncated episodes are not bootstrapped, here as there.

`similarity=0.9` groups states whose texts are similar instead of equal (`agentrl.graph.similarity`): the official
greedy first fit, whose partition depends on the order of rows.
"""

from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from agentrl.algorithms.credit import grpo
from agentrl.credit import Credit
from agentrl.graph import StepGraph, count, group_norm, keys, scan, similar_states

PAPER = "GiGPO, arXiv:2505.10978"
DEMONSTRATIONS = True
NEEDS = ("state",)


class Config(grpo.Config, frozen=True):
    """gamma: discount per step. step_weight: weight of the step term, the paper's omega. similarity: states whose
    texts are at least this similar (a ratio) count as one state; off: only equal ones do."""

    OFFICIAL = MappingProxyType({"unit": "step", "singleton": "pass", "invalid_penalty": 0.1})

    gamma: float = Field(0.95, ge=0, le=1)
    step_weight: float = 1.0
    similarity: float | Literal["off"] = "off"

    @field_validator("similarity", mode="before")
    @classmethod
    def _threshold(cls, given: Any) -> Any:
        try:
            fits = given == "off" or 0 < float(given) <= 1
        except (TypeError, ValueError):
            fits = False
        if not fits:
            raise ValueError("it must be off, or a ratio above 0 and at most 1, such as 0.9")
        return given


def step_return(graph: StepGraph, gamma: float, invalid_penalty: float) -> np.ndarray:
    """[N] discounted return of each step; the penalty is local: earlier steps do not see it."""
    return scan(graph.reward, gamma, graph.parent) - invalid_penalty * ~graph.valid


def credit(graph: StepGraph, config: Config) -> Credit:
    """A = A_episode + step_weight * A_step; a state seen once adds nothing."""
    episode = grpo.episode_advantage(graph, config)  # [N]
    returns = step_return(graph, config.gamma, config.invalid_penalty)  # [N]
    state = graph.state if config.similarity == "off" else similar_states(graph, config.similarity)  # [N]
    anchor = keys(graph.peers, state)  # [N]
    step = group_norm(returns, anchor, std=config.std, eps=config.eps, weight=graph.weight)  # [N]
    return Credit.of(
        episode + config.step_weight * step,
        parts={
            "episode_advantage": episode,
            "step_advantage": step,
            "step_return": returns,
            "step_group": anchor,
        },
        metrics={"singleton_step_groups": float(np.mean(count(anchor) == 1)) if len(graph) else 0.0},
    )
