"""One advantage for all the conversations of a sample.

Formula: `A = GN(score | group)` on every conversation of a sample.

Source: MemAgent's Multi-Conv DAPO, arXiv:2507.02259, and SUPO, arXiv:2510.06727. An episode is a sample, its
turns are independent conversations (memory updates, summaries, the answer), its reward is the sum of its
rows; the statistics count samples, and every conversation gets its sample's advantage. Official code
(MemAgent): sample std, eps 1e-6, or none in the released 7B run, which is the default here; a group of one sample
passes its score through (`preset=official`), here it gets 0. SUPO leaves unfinished rollouts out of the loss and keeps
them in the statistics: set update.train_unfinished=false.
"""

from types import MappingProxyType

from pydantic import Field

from agentrl.algorithms.credit.grpo import among_episodes
from agentrl.credit import Credit, Options
from agentrl.graph import Singleton, Std, StepGraph

PAPER = "MemAgent, arXiv:2507.02259; SUPO, arXiv:2510.06727"


class Config(Options, frozen=True):
    """std: standard deviation that divides; none is the released 7B recipe."""

    OFFICIAL = MappingProxyType({"singleton": "pass"})

    std: Std = "none"
    singleton: Singleton = "zero"
    eps: float = Field(1e-6, ge=0)


def credit(graph: StepGraph, config: Config) -> Credit:
    """GN(score | group), statistics over samples."""
    advantage = among_episodes(graph, std=config.std, eps=config.eps, singleton=config.singleton)  # [N]
    return Credit.of(advantage)
