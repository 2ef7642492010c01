"""One advantage for all the conversations of an episode.

Formula: `A = GN(score | group)` on every conversation of an episode.

Source: MemAgent's Multi-Conv DAPO, arXiv:2507.02259, and SUPO, arXiv:2510.06727. An episode is what these papers call a
sample. Its turns are independent conversations (memory updates, summaries, the answer), and its score is the sum of the
rewards of its steps. The statistics count each episode once, and every conversation gets the advantage of its episode.
The released code of MemAgent takes the sample standard deviation with eps 1e-6; the recipe of its 7B model does not
divide, which is the default here. A group of one episode gets its score in the released code (`preset=official`) and 0
here. SUPO excludes from the loss the rollouts that did not finish, but counts them in the statistics: set
update.train_unfinished=false.
"""

from types import MappingProxyType

from pydantic import Field

from agentrl.algorithms.credit.grpo import among_episodes
from agentrl.credit import Credit, Options
from agentrl.graph import Singleton, Std, StepGraph

PAPER = "MemAgent, arXiv:2507.02259; SUPO, arXiv:2510.06727"


class Config(Options, frozen=True):
    """std: divide the differences in a group by their sample or population standard deviation, or by nothing (none), as
    the recipe of the released 7B model does. preset: official sets singleton=pass, as in the released code."""

    OFFICIAL = MappingProxyType({"singleton": "pass"})

    std: Std = "none"
    singleton: Singleton = "zero"
    eps: float = Field(1e-6, ge=0)


def credit(graph: StepGraph, config: Config) -> Credit:
    """GN(score | group), with statistics over episodes."""
    advantage = among_episodes(graph, std=config.std, eps=config.eps, singleton=config.singleton)  # [N]
    return Credit.of(advantage)
