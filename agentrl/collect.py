"""One batch of rollouts as a step graph, drawn again where the sampler finds groups not worth an update."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agentrl.config import Entry
from agentrl.graph import StepGraph
from agentrl.records import EpisodeRecord, build_graph
from agentrl.rollout import Player, play
from agentrl.sampler import Sampler
from agentrl.types import Status


@dataclass(frozen=True, kw_only=True)
class Collected:
    """A batch: its graph, its records (for timings) and what to log."""

    graph: StepGraph
    records: Sequence[EpisodeRecord]
    metrics: dict[str, float]


async def collect(
    player: Player,
    sampler: Sampler,
    entry: Entry,
    *,
    tasks: int,
    copies: int,
    iteration: int,
    on_episode: Any = None,
) -> Collected:
    """`tasks` groups of `copies` rollouts.

    With a sampler that filters (`keep`), rounds of rollouts are played until enough groups vary; the batch
    keeps its size, the last round fills it whatever it holds, and both kinds are counted.
    """
    keep = getattr(entry.module, "keep", None)
    rounds = entry.config.max_tries if keep else 1
    chosen: list[list[EpisodeRecord]] = []
    spare: list[list[EpisodeRecord]] = []
    played = 0
    for attempt in range(rounds):
        records = await play(
            player,
            sampler.draw(tasks),
            copies=copies,
            iteration=iteration * rounds + attempt,
            on_episode=on_episode,
        )
        graph = build_graph(records)
        sampler.observe(graph)
        groups = [records[g * copies : (g + 1) * copies] for g in range(tasks)]
        played += len(groups)
        varied = _varied(groups, graph, keep(entry.config, graph)) if keep else groups
        chosen += varied
        spare = [group for group in groups if not any(group is v for v in varied)]
        if len(chosen) >= tasks:
            break
    filled = max(0, tasks - len(chosen))
    batch = (chosen + spare)[:tasks]
    records = [_renumber(record, g) for g, group in enumerate(batch) for record in group]
    metrics = {
        **batch_metrics(records),
        "groups_played": played,
        "groups_dropped": played - len(batch),
        "groups_filled": filled,
    }
    return Collected(graph=build_graph(records), records=records, metrics=metrics)


def _renumber(record: EpisodeRecord, group: int) -> EpisodeRecord:
    return record if record.group == group else replace(record, group=group)


def _varied(groups: Sequence[list[EpisodeRecord]], graph: StepGraph, rows: np.ndarray) -> list[list[EpisodeRecord]]:
    """The groups that own a kept row."""
    numbers = [r.group for group in groups for r in group if r.steps]  # rollout number -> group
    kept = {numbers[rollout] for rollout in np.unique(graph.rollout[rows])}
    return [group for number, group in enumerate(groups) if number in kept]


def batch_metrics(records: Sequence[EpisodeRecord]) -> dict[str, float]:
    """Success, lengths, endings and failures of a batch; shares are of scored rollouts."""
    scored = [r for r in records if r.ending != Status.ENV_ERROR]
    steps = sum(len(r.steps) for r in scored)
    share = 1.0 / max(1, len(scored))
    groups: dict[int, set[float]] = {}
    for record in scored:
        groups.setdefault(record.group, set()).add(sum(s.reward for s in record.steps))
    return {
        "success": sum(r.success for r in scored) * share,
        "reward": sum(s.reward for r in scored for s in r.steps) * share,
        "steps": steps * share,
        "episodes": len(scored),
        "tokens": sum(len(s.generation.token_ids) for r in scored for s in r.steps),
        "invalid_share": sum(not s.valid for r in scored for s in r.steps) / max(1, steps),
        "truncated_share": sum(bool(r.steps) and r.steps[-1].truncated for r in scored) * share,
        "env_error_share": (len(records) - len(scored)) / max(1, len(records)),
        "retried": sum(r.attempts > 1 for r in records),
        "constant_groups": sum(len(scores) == 1 for scores in groups.values()) / max(1, len(groups)),
    }
