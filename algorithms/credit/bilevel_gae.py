"""Bi-level advantage estimation: over turns, then over the tokens of each turn.

Formula: `delta_k = r_k + gamma_turn V_{k+1} - V_k` and GAE over turns; then GAE over the tokens of each turn, whose
last token earns `A_k + V_k`.

Source: RAGEN, arXiv:2504.20073, and VAGEN, arXiv:2510.16907, official code of RAGEN. Turns first: GAE with
gamma_turn and lam on the value at each turn's last token. Then the turn's return (advantage + value) is the
reward of its last token, and token GAE with gamma_token and lam runs inside the turn, with nothing beyond its
end. The official code finds the end of a turn by a non-zero reward, so that it misses a turn of reward 0; here every
step is a turn. `whiten`: over all response tokens of an agent, sample variance, eps 1e-8 under the root; `token_return`
is never whitened. A truncated last turn uses `next_value`.
"""

from types import MappingProxyType

import numpy as np
from pydantic import Field

from agentrl.algorithms.credit._tokens import token_credit, token_rows
from agentrl.algorithms.credit.turn_ppo import bootstrap_value
from agentrl.credit import Credit, Options
from agentrl.graph import StepGraph, following, gae, whiten

PAPER = "RAGEN, arXiv:2504.20073; VAGEN"
NEEDS = ("token_value",)
ON = "tokens"


class Config(Options, frozen=True):
    """gamma_turn: discount per turn. gamma_token: discount per token. lam: decay of GAE, at both levels.
    preset: `official` whitens, as the released code does.
    """

    OFFICIAL = MappingProxyType({"whiten": True})

    gamma_turn: float = Field(0.99, ge=0, le=1)
    gamma_token: float = Field(1.0, ge=0, le=1)
    lam: float = Field(1.0, ge=0, le=1)
    whiten: bool = False


def credit(graph: StepGraph, config: Config) -> Credit:
    """Turn GAE, then token GAE towards each turn's return."""
    tokens = token_rows(graph, "bilevel_gae")
    value = tokens.value[tokens.last]  # [N]
    after = following(value, graph.parent, bootstrap_value(graph, "value", "bilevel_gae"))  # [N]
    turn = gae(graph.reward, value, after, graph.parent, config.gamma_turn, config.lam)  # [N]
    above = np.arange(len(tokens.row)) - 1  # [T] the token before, inside the turn
    above[tokens.first] = -1
    reward = np.zeros(len(tokens.row))  # [T]
    reward[tokens.last] = turn + value
    after = following(tokens.value, above)  # [T]
    advantage = gae(reward, tokens.value, after, above, config.gamma_token, config.lam)  # [T]
    returns = advantage + tokens.value  # [T]
    if config.whiten:
        advantage = whiten(advantage, graph.weight[tokens.row], key=graph.agent[tokens.row])
    return token_credit(graph, tokens, advantage, returns)
