"""Two ways to make a process reward model's scores safe to maximise.

Source: Gao et al., "On designing effective RL reward at training time for LLM reasoning", arXiv:2410.15115
(from memory). clip: r = min(score - threshold, 0): a good step earns nothing, so repeating good steps pays
nothing. delta: r_k = score_k - score_{k+1}, the last turn but one keeps its score, the last turn gets 0: what
follows a turn sums to that turn's score alone, whatever the number of turns.
"""

from typing import Literal

import numpy as np
from pydantic import BaseModel

from agentrl.segments import following


class Config(BaseModel, frozen=True, extra="forbid"):
    """form: one of the two, or both (clip first). threshold: of clip, in the score's unit."""

    form: Literal["clip", "delta", "clip_delta"] = "clip_delta"
    threshold: float = 0.5


def reward(score: np.ndarray, parent: np.ndarray, config: Config) -> np.ndarray:
    """[N] turn rewards from the process scores [N] of chains; `parent` [N] is the turn before, -1 at the
    first."""
    value: np.ndarray = np.asarray(score, np.float64)  # [N]
    if config.form != "delta":
        value = np.minimum(value - config.threshold, 0.0)
    if config.form == "clip":
        return value
    last = following(np.ones(len(value)), parent) == 0  # [N]
    kept = np.where(last, 0.0, value)  # [N]
    delta: np.ndarray = kept - following(kept, parent)  # [N]
    return delta
