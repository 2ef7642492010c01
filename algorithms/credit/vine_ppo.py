"""Step advantages from Monte Carlo values.

Formula: `A_k = r_k + V_{k+1} - V_k`.

Source: VinePPO, Kazemnejad et al., arXiv:2410.01679. V_k is the column `value`, the mean outcome of fresh continuations
from the state of step k; after the end of an episode V is 0. There is no discount and no normalisation. As in the
released code, the last steps of an episode may have no `value`. For these steps V_k is r_k + V_{k+1}, so their
advantage is 0.
"""

import numpy as np

from agentrl.credit import Credit, Options, where
from agentrl.graph import StepGraph, following, scan

PAPER = "VinePPO, arXiv:2410.01679"
READS = ("value",)


class Config(Options, frozen=True):
    """preset: has no effect on this method."""


def credit(graph: StepGraph, config: Config) -> Credit:
    """A_k = r_k + V_{k+1} - V_k.

    Raises:
        ValueError: a value is absent before its episode's last estimate.
    """
    value = graph.column("value")  # [N]
    absent = np.isnan(value)  # [N]
    gap = absent & (scan((~absent).astype(float), 1.0, graph.parent) > 0)  # [N] an estimate follows
    if gap.any():
        at = where(graph, int(np.argmax(gap)))
        raise ValueError(f"{at}: value: missing before the episode's last estimate, vine_ppo needs it there")
    value = np.where(absent, scan(graph.reward, 1.0, graph.parent), value)  # [N]
    advantage = graph.reward + following(value, graph.parent) - value  # [N]
    return Credit.of(advantage, returns=advantage + value)
