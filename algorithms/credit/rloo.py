"""REINFORCE leave-one-out: the episode's score less the mean score of the other episodes of its group.

Formula: `A_i = score_i - sum over j != i of score_j / (n - 1)` in a group of n.

Source: RLOO, Ahmadian et al., arXiv:2402.14740, written as (s - mean) * n / (n - 1). Official code (TRL,
verl): the same over trajectories; a group of one passes its score through in verl (`preset=official`) and
gets 0 here. verl-agent gives the function step rows (`unit=step`), so that one row is left out and not one episode.
"""

from types import MappingProxyType
from typing import Literal

from pydantic import Field

from agentrl.algorithms.credit.grpo import penalised_score, votes
from agentrl.credit import Credit, Options
from agentrl.graph import Singleton, StepGraph, leave_one_out

PAPER = "RLOO, arXiv:2402.14740"
DEMONSTRATIONS = True


class Config(Options, frozen=True):
    """unit: what the mean and n count. invalid_penalty is subtracted from the row's score before."""

    OFFICIAL = MappingProxyType({"singleton": "pass"})

    unit: Literal["episode", "step"] = "episode"
    singleton: Singleton = "zero"
    invalid_penalty: float = Field(0.0, ge=0)


def credit(graph: StepGraph, config: Config) -> Credit:
    """Every step of an episode gets the episode's leave-one-out advantage."""
    score = penalised_score(graph, config.invalid_penalty)  # [N]
    counted = votes(graph, config.unit)  # [N]
    return Credit.of(leave_one_out(score, graph.peers, singleton=config.singleton, weight=counted))
