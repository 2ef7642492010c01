"""How the tests here grow batches on toy environments."""

import asyncio
from collections.abc import Sequence
from typing import Any

from agentrl.config import resolve
from agentrl.env import make_pool, tasks_of
from agentrl.rollout import Draw, EpisodeRecord, Expansion
from agentrl.types import Task
from tests.rollout.playing import WALK, entry, player


def walks(count: int, goal: int | None = None) -> list[Task]:
    """Corridors; `goal` puts the goal of all there."""
    return [
        Task(key=f"walk/{i}", env=WALK, seed=i, params={} if goal is None else {"goal": goal}) for i in range(count)
    ]


def expansion(name: str = WALK, tasks: Sequence[Task] | None = None, *, where: str = "inline", **options: Any):
    """A batch on all tasks of the environment, played at random."""
    on = entry(name)
    pool = options.pop("pool", None) or make_pool(on, where, 2)
    return Expansion(player(on, pool, **options), [Draw(task=task) for task in tasks or tasks_of(on)])


def expand(name: str, batch: Expansion, copies: int = 1, **options: Any) -> list[EpisodeRecord]:
    """What a rollout entry makes of it."""
    found = resolve("rollout", {"name": name, **options})

    async def run() -> list[EpisodeRecord]:
        records: list[EpisodeRecord] = await found.hooks.rollout(found.config, batch, copies)
        return records

    records = asyncio.run(run())
    batch.finish()
    return records
