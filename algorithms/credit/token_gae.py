"""Generalised advantage estimation over the tokens of an episode: PPO's usual credit.

Formula: `A_j = delta_j + gamma lam A_{j+1}`, `delta_j = r_j + gamma V_{j+1} - V_j` over tokens.

Source: GAE, Schulman et al., arXiv:1506.02438, Eq. 16, over the token-level MDP of PPO for language models
(Ouyang et al., arXiv:2203.02155): an episode's sampled tokens are one chain, observations are not part of it; a
turn's reward is paid on its last token; every token is discounted by gamma and carried by gamma lam, across turns
too. It is what turn-PPO (arXiv:2512.17008) compares itself with, which found that gamma = lam = 1, the default here, is
needed. With gamma = 1 it is `poad`. Beyond the end of a truncated episode the value is `next_value`, beyond the end of
a terminated one 0. `whiten`: over all response tokens of an agent, sample variance, eps 1e-8 under the root, as PPO
codes do; `token_return`, the critic's target, is never whitened.
"""

import numpy as np
from pydantic import Field

from agentrl.algorithms.credit._tokens import token_credit, token_rows
from agentrl.algorithms.credit.turn_ppo import bootstrap_value
from agentrl.credit import Credit, Options
from agentrl.graph import StepGraph, following, gae, whiten

PAPER = "PPO over tokens, arXiv:1506.02438, arXiv:2203.02155"
NEEDS = ("token_value",)
ON = "tokens"


class Config(Options, frozen=True):
    """gamma: discount per token. lam: decay per token."""

    gamma: float = Field(1.0, ge=0, le=1)
    lam: float = Field(1.0, ge=0, le=1)
    whiten: bool = False


def credit(graph: StepGraph, config: Config) -> Credit:
    """A_j = delta_j + gamma lam A_{j+1}, delta_j = r_j + gamma V_{j+1} - V_j, over all tokens of each episode."""
    tokens = token_rows(graph, "token_gae")
    end = np.zeros(len(tokens.row), bool)
    end[tokens.last] = True  # [T] a turn's last token
    above = np.arange(len(tokens.row)) - 1  # [T] the token before, in the turn before at a turn's first
    above[tokens.first] = np.where(graph.parent >= 0, tokens.last[graph.parent], -1)
    after = following(tokens.value, above, bootstrap_value(graph, "value", "token_gae")[tokens.row])  # [T]
    reward = np.where(end, graph.reward[tokens.row], 0.0)  # [T]
    advantage = gae(reward, tokens.value, after, above, config.gamma, config.lam)  # [T]
    returns = advantage + tokens.value  # [T]
    if config.whiten:
        advantage = whiten(advantage, graph.weight[tokens.row], key=graph.agent[tokens.row])
    return token_credit(graph, tokens, advantage, returns)
