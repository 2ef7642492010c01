"""Rewards of a main agent and of the sub-agents it calls.

Formula: main agents `0.1 format + 0.9 correct`, sub-agents `0.1 format + 0.4 correct + 0.5 expert`; 0 where the format
is invalid.

Source: M-GRPO, arXiv:2511.13288: a trajectory whose own format is invalid gets 0; else
main = 0.1 format + 0.9 correct, sub = 0.1 format + 0.4 correct of the main answer + 0.5 an expert's judgement
of the sub-task. Released code (MrlX), a different function: `released_sub_reward`.
"""

import numpy as np
from pydantic import BaseModel

from agentrl.credit import ends, on_ends, signal, totals
from agentrl.graph import StepGraph


class Config(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """main: weights of format and correctness. sub: weights of format, of the main answer's correctness and of the
    expert's judgement. valid, correct, expert: names of the signals, each summed over an episode; a format is valid if
    its sum is above 0."""

    main: tuple[float, float] = (0.1, 0.9)
    sub: tuple[float, float, float] = (0.1, 0.4, 0.5)
    valid: str = "format"
    correct: str = "correct"
    expert: str = "expert"


def reward(graph: StepGraph, config: Config) -> np.ndarray:
    """[N] each episode's reward, on its last step: the sub-agents' formula for episodes that have a caller, the main
    agents' for all others.

    The main answer of a sub-trajectory is that of its rollout. Without sub-agents the expert's signal is not needed.

    Raises:
        ValueError: no step reports a signal.
    """
    at = ends(graph)
    called = graph.caller[at.row] >= 0  # [E]
    valid, correct = (totals(graph, signal(graph, name), at) for name in (config.valid, config.correct))  # [E]
    expert = totals(graph, signal(graph, config.expert), at) if called.any() else np.zeros(len(called))  # [E]
    rollout = np.unique(graph.rollout, return_inverse=True)[1]  # [N]
    answer = np.zeros(int(rollout.max(initial=-1)) + 1)  # [rollouts] correctness of the main answer
    answer[rollout[at.row[~called]]] = correct[~called]
    main = main_reward(valid > 0, correct, config)  # [E]
    sub = sub_reward(valid > 0, answer[rollout[at.row]], expert, config)  # [E]
    return on_ends(graph, np.where(called, sub, main), at)


def main_reward(valid: np.ndarray, correct: np.ndarray, config: Config) -> np.ndarray:
    """[E] reward of main trajectories: `valid` [E] bool format, `correct` [E] in 0..1."""
    a, b = config.main
    return np.where(valid, a + b * np.asarray(correct, np.float64), 0.0)


def sub_reward(valid: np.ndarray, main_correct: np.ndarray, expert: np.ndarray, config: Config) -> np.ndarray:
    """[E] reward of sub-trajectories: `main_correct` [E] of the rollout that called them, `expert` [E] in
    0..1."""
    a, b, c = config.sub
    shared, judged = np.asarray(main_correct, np.float64), np.asarray(expert, np.float64)  # [E]
    return np.where(valid, a + b * shared + c * judged, 0.0)


def released_sub_reward(valid: np.ndarray, main: np.ndarray) -> np.ndarray:
    """[E] the reward of MrlX's code: 0 with a bad format, 1 if the main reward was 1, else 0.1."""
    return np.where(valid, np.where(np.asarray(main) >= 1.0, 1.0, 0.1), 0.0)
