"""Rewards a right answer more if the policy gave it a low probability.

Formula: `r_i = R_i (1 - beta (G - rank_i) / G)`.

Source: He, Fried and Welleck, "Rewarding the Unlikely", arXiv:2506.02355, section 4:
r_i = R_i (1 - beta (G - rank_i) / G), with G copies of a task and rank_i = 0 for the copy that the policy finds most
likely. GRPO alone makes likely answers still likelier, which lowers pass@k at large k. The likelihood is the trainer's
before the update (`old_logprob`), summed over the sampled tokens of the path, so this reward is computed after
annotation. The rank is the number of copies that are strictly more likely: equally likely copies are paid alike.

Compared with the released code (verl/trainer/ppo/ray_lean_trainer.py, `_compute_advantages`), which `preset =
"official"` takes: there the likelihood is the mean over the tokens, so that long answers are not unlikely for their
length, and the factor is 1 - beta (G - 1 - rank_i) / G, so that the least likely copy loses nothing; beta = 0.25
(`rank_penalty`). It breaks ties by the order of the copies.
"""

from typing import Literal

import numpy as np
from pydantic import BaseModel, Field

from agentrl.credit import ends, on_ends, signal, totals
from agentrl.graph import StepGraph, token_rows

NEEDS = ("old_logprob",)


class Config(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """See the module.

    Attributes:
        beta: what the most likely copy loses, as a share of its reward.
        preset: the settings of the paper, or of the released code (official).
        correct: the signal R, summed over episodes.
    """

    beta: float = Field(0.25, ge=0, le=1)
    preset: Literal["paper", "official"] = "paper"
    correct: str = "env_reward"


def reward(graph: StepGraph, config: Config) -> np.ndarray:
    """[N] the reward of each path, on its last step.

    Raises:
        ValueError: no step reports the signal.
    """
    assert graph.tokens is not None, "the likelihood of an answer needs tokens"
    logprob = graph.token_column("old_logprob", "reward unlikeliness")  # [S]
    sampled = graph.tokens.sampled  # [S]
    per_step = np.bincount(token_rows(graph.tokens)[sampled], logprob[sampled], minlength=len(graph))  # [N]
    at = ends(graph)
    right, likely = totals(graph, signal(graph, config.correct), at), totals(graph, per_step, at)  # [E] each
    if config.preset == "official":
        tokens = np.bincount(token_rows(graph.tokens)[sampled], minlength=len(graph)).astype(float)  # [N]
        likely = likely / np.maximum(totals(graph, tokens, at), 1)
    spared = int(config.preset == "official")
    return on_ends(graph, unlikely(right, likely, at.group, at.weight > 0, config.beta, spared), at)


def unlikely(
    right: np.ndarray, logprob: np.ndarray, group: np.ndarray, counted: np.ndarray, beta: float, spared: int = 0
) -> np.ndarray:
    """[E] the reward of each path.

    Args:
        right: [E] the correctness reward R.
        logprob: [E] log-probability of the path, in nats.
        group: [E] the copies of one task have one number.
        counted: [E] bool, paths that are ranked; the others keep R.
        beta: see `Config`.
        spared: 1 lets the least likely copy lose nothing.
    """
    paid = np.asarray(right, np.float64).copy()  # [E]
    for number in np.unique(group):
        own = np.flatnonzero((group == number) & counted)  # [G]
        rank = (logprob[own][None, :] > logprob[own][:, None]).sum(1)  # [G] copies that are more likely
        paid[own] *= 1.0 - beta * (len(own) - spared - rank) / max(1, len(own))
    return paid
