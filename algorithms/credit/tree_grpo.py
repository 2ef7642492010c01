"""Group advantages among the leaves of a prompt and among the leaves of one tree.

Formula: `A = inter_weight * GN(R | prompt) + intra_weight * GN(R | tree)`, R the score of a leaf.

Source: Tree-GRPO, arXiv:2509.21240. Each leaf is a trajectory with one score R; A_inter normalises R among
the leaves of the prompt, A_intra among those of the tree, A = inter_weight * A_inter + intra_weight *
A_intra. A shared prefix step gets the sum over the leaves below it (the core pools the paths). Official code
(AMAP-ML/Tree-GRPO): sample std, eps 1e-6, and a tree with one leaf passes its score through, which makes the
method GRPO plus the raw score there; default here: 0 (`singleton`, both terms). Other released modes: `inner`
(A_intra alone), `nested` (A_inter normalised again inside the tree), `per_token` (token rewards pooled
instead of leaf scores: a step's tokens before the last share one advantage and the last token, which has the
reward, gets another).
"""

from types import MappingProxyType
from typing import Literal

import numpy as np
from pydantic import Field

from agentrl.algorithms.credit.grpo import votes
from agentrl.credit import Credit, Options
from agentrl.graph import Singleton, Std, StepGraph, broadcast, group_norm, keys

PAPER = "Tree-GRPO, arXiv:2509.21240"
NEEDS = ("tree",)


class Config(Options, frozen=True):
    """mode: `tree` adds a comparison of the leaves of a tree and one of all leaves of the prompt, `inner` takes that of
    the tree alone, `nested` takes that of the prompt and normalises it again inside the tree, `per_token` compares
    token rewards. intra_weight: weight of the comparison inside a tree. inter_weight: weight of that among all leaves
    of the prompt. The weights apply in mode tree and per_token.
    """

    OFFICIAL = MappingProxyType({"singleton": "pass"})

    intra_weight: float = 1.0
    inter_weight: float = 1.0
    mode: Literal["tree", "inner", "nested", "per_token"] = "tree"
    std: Std = "sample"
    eps: float = Field(1e-6, ge=0)
    singleton: Singleton = "zero"

    @property
    def per_token(self) -> bool:
        return self.mode == "per_token"


def norm(x: np.ndarray, key: np.ndarray, config: Config, weight: np.ndarray) -> np.ndarray:
    """[N] the one normalisation of all modes."""
    return group_norm(x, key, std=config.std, eps=config.eps, singleton=config.singleton, weight=weight)


def credit(graph: StepGraph, config: Config) -> Credit:
    """One advantage per leaf trajectory, on each of its steps."""
    tree = keys(graph.peers, graph.tree)  # [N]
    if config.mode == "per_token":
        return per_token(graph, config, tree)
    leaves = votes(graph, "episode")  # [N]
    inter = norm(graph.score, graph.peers, config, leaves)  # [N]
    intra = norm(graph.score, tree, config, leaves)  # [N]
    advantage = {
        "tree": config.inter_weight * inter + config.intra_weight * intra,
        "inner": intra,
        "nested": norm(inter, tree, config, leaves),
    }[config.mode]
    return Credit.of(advantage, parts={"intra": intra, "inter": inter})


def per_token(graph: StepGraph, config: Config, tree: np.ndarray) -> Credit:
    """Two advantages per step; `advantage` is their mean over the step's tokens. A tree or prompt with a single token
    gets 0 whatever `singleton` says, as in the released code.

    Raises:
        ValueError: the graph has no tokens.
    """
    if graph.tokens is None:
        raise ValueError("tree_grpo mode=per_token needs n_tokens on each step")
    config = config.model_copy(update={"singleton": "zero"})
    sampled = np.append(0, np.cumsum(graph.tokens.sampled))  # [S+1]
    n = np.diff(sampled[graph.tokens.offsets])  # [N] sampled tokens of each step
    reward = np.concatenate([graph.reward, np.zeros(len(graph))])  # [2N] last tokens, then those before
    weight = np.concatenate([n > 0, np.maximum(n - 1, 0)]) * np.tile(graph.weight, 2)  # [2N]
    inter = norm(reward, np.tile(graph.peers, 2), config, weight)  # [2N]
    intra = norm(reward, np.tile(tree, 2), config, weight)  # [2N]
    both = config.inter_weight * inter + config.intra_weight * intra  # [2N]
    last, before = both[: len(graph)], both[len(graph) :]  # [N]
    row = broadcast(np.arange(len(graph)), graph.tokens.offsets)  # [S]
    final = sampled[1:] == sampled[graph.tokens.offsets[row + 1]]  # [S] no sampled token of the row follows
    token = np.where(final, last[row], before[row]) * graph.tokens.sampled  # [S]
    average = (last + np.maximum(n - 1, 0) * before) / np.maximum(n, 1)  # [N]
    return Credit.of(
        average,
        token_advantage=token,
        parts={"advantage_before_last": before, "advantage_last": last},
        token_parts={"token_advantage": token},
    )
