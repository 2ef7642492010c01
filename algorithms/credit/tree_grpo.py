"""Group advantages among the leaves of a prompt and among the leaves of one tree.

Formula: `A = inter_weight * GN(R | prompt) + intra_weight * GN(R | tree)`, where R is the score of a leaf.

Source: Tree-GRPO, arXiv:2509.21240. Each leaf is a trajectory with one score R. A_inter normalises R among the leaves
of the prompt, A_intra among the leaves of the tree. A step that several leaves share gets the sum of their advantages
(`agentrl.credit.assign` adds them up). The released code (AMAP-ML/Tree-GRPO) takes the sample standard deviation and
eps 1e-6. If a tree has one leaf, A_intra is the leaf's score in the released code (`preset=official`), and A is
the credit of GRPO plus that score. By default here A_intra of such a tree is 0. The option `singleton` decides this in
both terms, but not with `per_token`. The released code has three more modes: `inner` is A_intra alone, `nested`
normalises A_inter again inside the tree, and `per_token` compares the rewards of tokens, not the scores of leaves. With
`per_token`, the last token of a step has the step's reward and gets one advantage; the tokens before it have the reward
0 and share another advantage.

The called chains of a program are in the tree of the main chain of their episode, which counts for them
(`StepGraph.lead`).
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
    """mode: add the advantage among the leaves of the prompt and the advantage among the leaves of the tree (tree);
    take the advantage among the leaves of the tree alone (inner); normalise the advantage among the leaves of the
    prompt again inside the tree (nested); or compare the rewards of tokens, not the scores of leaves (per_token).
    intra_weight: weight of the advantage inside a tree, in the modes tree and per_token. inter_weight: weight of the
    advantage inside a prompt, in the modes tree and per_token. preset: official sets singleton=pass, as in the released
    code.
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
    """[N] x normalised among the rows with an equal key, as all modes do it."""
    return group_norm(x, key, std=config.std, eps=config.eps, singleton=config.singleton, weight=weight)


def credit(graph: StepGraph, config: Config) -> Credit:
    """One advantage per leaf trajectory, on each of its steps."""
    tree = keys(graph.peers, graph.tree[graph.lead])  # [N]
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
    gets 0, as in the released code; `singleton` has no effect.

    Raises:
        ValueError: the graph has no tokens.
    """
    if graph.tokens is None:
        raise ValueError("tree_grpo mode=per_token needs n_tokens on each step")
    config = config.model_copy(update={"singleton": "zero"})
    sampled = np.append(0, np.cumsum(graph.tokens.sampled))  # [S+1]
    n = np.diff(sampled[graph.tokens.offsets])  # [N] sampled tokens of each step
    reward = np.concatenate([graph.reward, np.zeros(len(graph))])  # [2N] last tokens, then those before
    weight = np.concatenate([n > 0, np.maximum(n - 1, 0)]) * np.tile(graph.weight * graph.counted, 2)  # [2N]
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
