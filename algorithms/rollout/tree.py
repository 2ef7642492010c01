"""Trees of whole steps, grown at random nodes.

Formula: per tree 1 + N L leaves, of which k are kept; M trees per task.

Source: Tree-GRPO, arXiv:2509.21240, section 3 and AMAP-ML/Tree-GRPO. A node is a complete step (thought, action,
observation), the root is the prompt, a leaf is a step that ended its episode. One chain is played from each of M roots.
Then, L times, N nodes per tree are drawn uniformly and with replacement from the root and all nodes that are not
leaves, and from each of them a new chain is played to its end; all new chains of all trees and tasks run together. Of a
tree's 1 + N L leaves k are kept at random, and steps that lead to no kept leaf are left out. The released code does the
same; its options for other ways to choose nodes have no effect.

A chain that a fault ended gives no nodes, and is returned beside the kept leaves. `limits.turns` ends every path in the
same way; the released code adds one forced answer without tools to the paths that reach this limit.

Cost: M + M N L f chains per task, where f is the mean share of a chain that a new chain plays itself. For chains of T
steps and L = 1, f = (T + 1) / (2 T); the paper says 1/2.
"""

from itertools import groupby

import numpy as np
from pydantic import Field, model_validator

from agentrl.rollout import Branch, EpisodeRecord, Expansion, RolloutOptions, adopt, lost

FILLS = ("tree",)


class Config(RolloutOptions, frozen=True):
    """Options. The defaults are the setting of the paper: six episodes per task for the cost of about four chains.

    Attributes:
        trees: M, number of roots per task (`batch.copies` is not used).
        nodes: N, number of nodes drawn per tree and round.
        rounds: L, number of rounds in which trees grow.
        leaves: k, number of leaves kept per tree, at most 1 + nodes * rounds.
    """

    trees: int = Field(2, ge=1, le=1000)
    nodes: int = Field(2, ge=1, le=1000)
    rounds: int = Field(1, ge=0, le=1000)
    leaves: int = Field(3, ge=1)

    @model_validator(mode="after")
    def _enough(self) -> "Config":
        grown = 1 + self.nodes * self.rounds
        if self.leaves > grown:
            raise ValueError(f"leaves is {self.leaves}, a tree has 1 + nodes * rounds = {grown}: lower leaves")
        return self


def leaves(config: Config, copies: int) -> int:
    """Scored episodes per task."""
    return config.trees * config.leaves


async def rollout(config: Config, batch: Expansion, copies: int) -> list[EpisodeRecord]:
    """See `agentrl.rollout.expansion`."""
    found = await batch.begin(config.trees, remember=config.rounds > 0)
    for number in range(config.rounds):
        drawn: list[Branch] = []
        for tree in by_tree(found):
            inner = nodes(tree)
            rng = batch.rng(tree[0].group, tree[0].copy, number)
            drawn += [inner[i] for i in rng.integers(len(inner), size=config.nodes).tolist()]
        found += await batch.go_on(drawn, remember=number + 1 < config.rounds)
    return [record for tree in by_tree(found) for record in kept(tree, config.leaves, batch)]


def by_tree(records: list[EpisodeRecord]) -> list[list[EpisodeRecord]]:
    """The records of each tree, its first chain first."""

    def place(record: EpisodeRecord) -> tuple[int, int]:
        assert record.tree is not None
        return record.group, record.tree

    return [list(tree) for _, tree in groupby(sorted(records, key=place), key=place)]


def nodes(tree: list[EpisodeRecord]) -> list[Branch]:
    """The root and every node that is no leaf, each once, as the branch that begins after the node."""
    inner = [Branch(record, turn) for record in tree if not lost(record) for turn in own_nodes(record)]
    return [Branch(tree[0], 0), *inner]


def own_nodes(record: EpisodeRecord) -> range:
    """The turns before which a new chain can begin: those that follow a step which this record played itself."""
    return range(record.inherited + 1, len(record.steps))


def kept(tree: list[EpisodeRecord], count: int, batch: Expansion) -> list[EpisodeRecord]:
    """`count` random leaves in the order in which they were played, then the chains that faults ended."""
    scored = [record for record in tree if not lost(record)]
    rng = batch.rng(tree[0].group, tree[0].copy, -1 % 2**32)
    chosen = np.sort(rng.permutation(len(scored))[:count]).tolist()
    found = [scored[i] for i in chosen]
    adopt(found, [record for i, record in enumerate(scored) if i not in chosen])
    return found + [record for record in tree if lost(record)]
