"""Demonstrations that join the groups of a batch: chains of kind DEMO, from the agent's expert or a stored success.

No success rate counts demonstrations. A credit method sees them if its file declares `DEMONSTRATIONS = True`.
Demonstrations count in the method's statistics if the guide says so (column `in_statistics`). A demonstration that the
policy sampled has log-probs, so the loss can train it with an importance ratio (column `in_gradient`). The
probabilities with which an expert acts are not known (its tokens have log-prob 0), so its demonstrations have no such
ratio; a regularizer can imitate them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np

from agentrl.config import Entry
from agentrl.credit import OWN, RewardTransform, rescore, with_env_reward, with_signals
from agentrl.graph import DEMO, StepGraph, concatenate
from agentrl.rollout.expansion import lost
from agentrl.rollout.guide import Demonstrate, Guide
from agentrl.rollout.record_graph import build_graph
from agentrl.rollout.records import EpisodeRecord
from agentrl.rollout.replay_buffer import Fresh, Joins, fresh_groups
from agentrl.types import Task


@runtime_checkable
class Demonstrating(Protocol):
    """A guide that puts demonstrations into the groups of a batch after the batch was played."""

    joins: Joins

    def missing(self, groups: Sequence[Fresh]) -> list[str]:
        """Keys of the tasks that the expert is to play now, each at most once."""
        ...

    def shown(self, records: Sequence[EpisodeRecord]) -> None:
        """Receive the expert's episodes, in the order of the keys."""
        ...

    def demonstration(self, group: Fresh) -> StepGraph | None:
        """The demonstration that joins a group, as `demonstration_of` made it; None if no demonstration joins."""
        ...


def demonstration_of(record: EpisodeRecord) -> StepGraph | None:
    """A solved episode as a graph of kind DEMO, with the agents that it called; None if it was not solved."""
    if lost(record) or not record.success:
        return None
    graph = build_graph([record])
    return graph.with_columns(kind=np.full(len(graph), DEMO, np.int8))


async def with_demonstrations(
    guide: Guide | None,
    graph: StepGraph,
    tasks: Mapping[str, Task],
    demonstrate: Demonstrate,
    rewards: Sequence[Entry[RewardTransform]] = (),
    reported: Sequence[str] = (),
) -> tuple[StepGraph, dict[str, float]]:
    """The rows of the batch followed by the demonstrations of the guide, and the metric `demonstrated_share`.

    This metric is the share of groups that got a demonstration.

    Args:
        guide: the guide of the recipe; None, or a guide that is not `Demonstrating`, leaves the batch as it is.
        graph: the batch.
        tasks: the tasks of the batch, by key.
        demonstrate: lets the agent's expert play tasks.
        rewards, reported: see `agentrl.rollout.collect`. The demonstrations get the recipe's reward as members of the
            groups that they join.
    """
    if not isinstance(guide, Demonstrating):
        return graph, {}
    groups = fresh_groups(graph, 0)
    if keys := guide.missing([fresh for _, fresh in groups]):
        guide.shown(await demonstrate([tasks[key] for key in keys]))
    found = [(group, guide.demonstration(fresh)) for group, fresh in groups]
    chosen = [(group, with_env_reward(one) if graph.has(OWN) else one) for group, one in found if one is not None]
    share = {"demonstrated_share": len(chosen) / max(1, len(groups))}
    if not chosen:
        return graph, share
    whole = _joined(graph, chosen, guide.joins)
    return (rescore(with_signals(whole, reported), rewards) if rewards else whole), share


def _joined(graph: StepGraph, chosen: Sequence[tuple[int, StepGraph]], joins: Joins) -> StepGraph:
    """The batch with demonstrations in its groups; `chosen` has (group, demonstration) pairs."""
    before = {name: graph.columns.get(name, np.ones(len(graph), bool)) for name in Joins._fields}
    whole = concatenate([graph.with_columns(**before), *(one for _, one in chosen)], [{0: at} for at, _ in chosen])
    demo = whole.kind == DEMO  # [N]
    now = {name: np.where(demo, getattr(joins, name), whole.column(name)) for name in Joins._fields}
    return replace(whole, columns={**whole.columns, **now})
