"""Token credit inside actions: policy optimisation with action decomposition.

Formula: `A_j = delta_j + c_j A_{j+1}` over tokens, with `delta_j = V_{j+1} - V_j` and `c_j = lam` inside an action,
`delta_j = r + gamma V_0(next) - V_j` and `c_j = gamma lam` at its last token.

Source: POAD, arXiv:2405.15821, and its released code (morning9393/ADRL). V_j is the critic's value before token j of an
action; V_0(next) is the value before the first token of the next step's action. Inside an action, tokens are not
discounted and have no reward. The reward of the step and the discount come at the action's last token. After the last
step of a terminated episode V_0(next) is 0; after a truncated last step it is the column `next_value`. The baselines
NTPO and ARCHER of the released code are other methods. The defaults are those of the paper's runs.
"""

import numpy as np
from pydantic import Field

from agentrl.algorithms.credit._tokens import token_credit, token_rows
from agentrl.algorithms.credit.turn_ppo import bootstrap_value
from agentrl.credit import Credit, Options
from agentrl.graph import StepGraph, following, scan

PAPER = "POAD, arXiv:2405.15821"
NEEDS = ("token_value",)
ON = "tokens"


class Config(Options, frozen=True):
    """gamma: discount per step. lam: decay of GAE per token. preset: has no effect on this method."""

    gamma: float = Field(0.95, ge=0, le=1)
    lam: float = Field(0.95, ge=0, le=1)


def credit(graph: StepGraph, config: Config) -> Credit:
    """One backward pass over all the tokens of each episode."""
    tokens = token_rows(graph, "poad")
    end = np.zeros(len(tokens.row), bool)
    end[tokens.last] = True  # [T] an action's last token
    above = np.arange(len(tokens.row)) - 1  # [T] the token before
    above[tokens.first] = np.where(graph.parent >= 0, tokens.last[graph.parent], -1)
    beyond = bootstrap_value(graph, "value", "poad")[tokens.row]  # [T]
    after = following(tokens.value, above, beyond)  # [T] V of the next token, V_0 of the next step at the end
    gamma = np.where(end, config.gamma, 1.0)  # [T]
    reward = np.where(end, graph.reward[tokens.row], 0.0)  # [T]
    advantage = scan(reward + gamma * after - tokens.value, gamma * config.lam, above)  # [T]
    return token_credit(graph, tokens, advantage, advantage + tokens.value)
