"""Generalised advantage estimation over the tokens of an episode: PPO's usual credit.

Formula: `A_j = delta_j + gamma lam A_{j+1}`, `delta_j = r_j + gamma V_{j+1} - V_j` over tokens.

Source: GAE, Schulman et al., arXiv:1506.02438, Eq. 16, over the token-level MDP of PPO for language models (Ouyang et
al., arXiv:2203.02155). The sampled tokens of an episode are one chain; tokens of observations are not part of it. The
reward of a turn is on its last token. Every token is discounted by gamma, also from one turn to the next. The paper of
turn-PPO (arXiv:2512.17008) compares turn-PPO with this method and finds that this method needs gamma = lam = 1, the
defaults here. With gamma = 1 and without `whiten`, this method is the same as `poad` with gamma = 1 and the same lam.
The value after the end of a truncated episode is the column `next_value`; after a terminated episode it is 0.
`whiten` takes the mean and the sample variance of all response tokens of an agent, as codes of PPO do: A becomes
(A - mean) / sqrt(variance + 1e-8). `token_return`, the critic's target, is never whitened. With `whiten`, the called
chains of a program's episode count once together (`agentrl.graph.step_votes`).
"""

import numpy as np
from pydantic import Field

from agentrl.algorithms.credit._tokens import token_credit, token_rows
from agentrl.algorithms.credit.turn_ppo import bootstrap_value
from agentrl.credit import Credit, Options
from agentrl.graph import StepGraph, following, gae, step_votes, whiten

PAPER = "PPO over tokens, arXiv:1506.02438, arXiv:2203.02155"
NEEDS = ("token_value",)
ON = "tokens"


class Config(Options, frozen=True):
    """gamma: discount per token. lam: decay of GAE per token. whiten: bring the advantages of all response tokens of an
    agent to mean 0 and standard deviation 1. preset: has no effect on this method."""

    gamma: float = Field(1.0, ge=0, le=1)
    lam: float = Field(1.0, ge=0, le=1)
    whiten: bool = False


def credit(graph: StepGraph, config: Config) -> Credit:
    """A_j = delta_j + gamma lam A_{j+1}, delta_j = r_j + gamma V_{j+1} - V_j, over all tokens of each episode."""
    tokens = token_rows(graph, "token_gae")
    end = np.zeros(len(tokens.row), bool)
    end[tokens.last] = True  # [T] a turn's last token
    above = np.arange(len(tokens.row)) - 1  # [T] the token before, which may be in the turn before
    above[tokens.first] = np.where(graph.parent >= 0, tokens.last[graph.parent], -1)
    after = following(tokens.value, above, bootstrap_value(graph, "value", "token_gae")[tokens.row])  # [T]
    reward = np.where(end, graph.reward[tokens.row], 0.0)  # [T]
    advantage = gae(reward, tokens.value, after, above, config.gamma, config.lam)  # [T]
    returns = advantage + tokens.value  # [T]
    if config.whiten:
        weight = step_votes(graph, graph.agent)[tokens.row]  # [T]
        advantage = whiten(advantage, weight, key=graph.agent[tokens.row])
    return token_credit(graph, tokens, advantage, returns)
