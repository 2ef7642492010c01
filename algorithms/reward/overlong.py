"""A soft penalty on answers whose length comes near the token limit.

Formula: `r = -scale * clip((tokens - (max_tokens - margin)) / margin, 0, 1)`.

Source: DAPO, arXiv:2503.14476, Eq. 13. With scale=1 the reward is 0 up to max_tokens - margin tokens, falls linearly to
-1 at max_tokens, and stays -1 beyond. Only tokens that the policy sampled are counted. With `unit=episode` the tokens
of the whole episode are counted, and the penalty is on the episode's last step.
"""

from typing import Literal

import numpy as np
from pydantic import BaseModel, Field

from agentrl.credit import ends, on_ends, totals
from agentrl.graph import StepGraph


class Config(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """max_tokens: number of tokens from which on the whole penalty is charged. margin: number of tokens, up to
    max_tokens, over which the penalty grows from 0. scale: the whole penalty, in the unit of the reward. unit: count
    the tokens of an episode together, or those of each step by themselves."""

    max_tokens: int = Field(20480, ge=1)
    margin: int = Field(4096, ge=1)
    scale: float = Field(1.0, ge=0)
    unit: Literal["episode", "step"] = "episode"


def reward(graph: StepGraph, config: Config) -> np.ndarray:
    """[N] penalty <= 0.

    Raises:
        ValueError: the steps have no tokens.
    """
    if graph.tokens is None:
        raise ValueError("reward overlong counts tokens, and these steps have none")
    before = np.append(0, np.cumsum(graph.tokens.sampled))  # [S+1]
    own = np.diff(before[graph.tokens.offsets])  # [N] sampled tokens of each step
    if config.unit == "step":
        return penalty(own, config)
    at = ends(graph)
    return on_ends(graph, penalty(totals(graph, own, at), config), at)


def penalty(tokens: np.ndarray, config: Config) -> np.ndarray:
    """[E] penalty <= 0 to be added to the reward, from the numbers of sampled tokens [E]."""
    over = np.asarray(tokens, np.float64) - (config.max_tokens - config.margin)  # [E]
    return -config.scale * np.clip(over / config.margin, 0.0, 1.0)
