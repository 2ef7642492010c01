"""Bi-level advantage estimation: over turns, then over the tokens of each turn.

Formula: GAE over turns gives A_k from `delta_k = r_k + gamma_turn V_{k+1} - V_k`, where V_k is the value at the last
token of turn k. GAE over the tokens of each turn follows; the last token of turn k has the reward `A_k + V_k`.

Source: RAGEN, arXiv:2504.20073, and VAGEN, arXiv:2510.16907. This file follows the released code of RAGEN. GAE over
turns uses gamma_turn and lam. GAE over tokens uses gamma_token and lam, and stops at the end of the turn. The released
code takes a non-zero reward as the end of a turn, so it misses turns of reward 0; here every step is a turn. `whiten`
takes the mean and the sample variance of all response tokens of an agent: A becomes (A - mean) / sqrt(variance + 1e-8).
`token_return`, the critic's target, is never whitened. The value after a truncated last turn is the column
`next_value`. With `whiten`, the called chains of a program's episode count once together (`agentrl.graph.step_votes`).
"""

from types import MappingProxyType

import numpy as np
from pydantic import Field

from agentrl.algorithms.credit._tokens import token_credit, token_rows
from agentrl.algorithms.credit.turn_ppo import bootstrap_value
from agentrl.credit import Credit, Options
from agentrl.graph import StepGraph, following, gae, step_votes, whiten

PAPER = "RAGEN, arXiv:2504.20073; VAGEN"
NEEDS = ("token_value",)
ON = "tokens"


class Config(Options, frozen=True):
    """gamma_turn: discount per turn. gamma_token: discount per token. lam: decay of GAE, per turn and per token.
    whiten: bring the advantages of all response tokens of an agent to mean 0 and standard deviation 1. preset: official
    sets whiten=true, as in the released code.
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
        weight = step_votes(graph, graph.agent)[tokens.row]  # [T]
        advantage = whiten(advantage, weight, key=graph.agent[tokens.row])
    return token_credit(graph, tokens, advantage, returns)
