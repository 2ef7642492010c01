"""Two ways to make a process reward model's scores safe to maximise.

Formula: clip: `r_k = min(score_k - threshold, 0)`; delta: `r_k = score_k - score_{k+1}`.

Source: Gao et al., "On designing effective RL reward at training time for LLM reasoning", arXiv:2410.15115
(from memory). clip: r = min(score - threshold, 0): a good step earns nothing, so repeating good steps pays
nothing. delta: r_k = score_k - score_{k+1}, the last turn but one keeps its score, the last turn gets 0: the rewards
from a turn on sum to that turn's score, whatever the number of turns.
"""

from typing import Literal

import numpy as np
from pydantic import BaseModel

from agentrl.credit import signal
from agentrl.graph import StepGraph, following


class Config(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """signal: the signal that holds the process scores. form: clip, delta, or both (clip first). threshold: bound of
    clip, in the score's unit. weight: factor of the result."""

    signal: str = "process"
    form: Literal["clip", "delta", "clip_delta"] = "clip_delta"
    threshold: float = 0.5
    weight: float = 1.0


def reward(graph: StepGraph, config: Config) -> np.ndarray:
    """[N] turn rewards of chains.

    Raises:
        ValueError: no step reports the signal, some step does not report it, or steps branch.
    """
    score = signal(graph, config.signal)  # [N]
    if np.isnan(score).any():
        row = int(np.argmax(np.isnan(score)))
        raise ValueError(
            f"reward process needs the signal {config.signal!r} on every step, and episode {graph.episode[row]} has "
            f"none at turn {graph.turn[row]}"
        )
    if graph.branched and config.form != "clip":
        raise ValueError("reward process: a step that branches has several next scores: use form=clip")
    return config.weight * turn_rewards(score, graph.parent, config)


def turn_rewards(score: np.ndarray, parent: np.ndarray, config: Config) -> np.ndarray:
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
