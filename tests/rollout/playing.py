"""How the tests here play a toy environment: a player around a pool and a policy, without a model."""

import asyncio
from collections.abc import Sequence
from typing import Any

from agentrl.config import Entry, resolve
from agentrl.env import Limits, Pool, prompt_of
from agentrl.rollout import EpisodeRecord, Player, PolicyActor, Random, Scripted, play
from agentrl.types import Task

WALK, FAULTY = "tests.toys.walk", "tests.toys.faulty"


def entry(name: str = WALK, **options: Any) -> Entry:
    return resolve("envs", {"name": name, **options})


def player(
    on: Entry,
    pool: Pool,
    *,
    policy: Any = None,
    actor: Any = None,
    limits: Limits | None = None,
    context: str = "full",
    seed: int = 0,
) -> Player:
    """Without a policy or actor: `Random`."""
    prompt = prompt_of(on)
    chosen = resolve("context", {"name": context})
    return Player(
        actor=actor or PolicyActor(policy or Random(prompt), None, None),
        pool=pool,
        prompt=prompt,
        context=chosen,
        limits=limits or Limits(turns=5, fault_share=1.0),
        seed=seed,
    )


def right() -> Scripted:
    return Scripted(["right"])


def play_all(by: Player, tasks: Sequence[Task], **options: Any) -> list[EpisodeRecord]:
    return asyncio.run(play(by, tasks, **options))


def script(record: EpisodeRecord) -> list[tuple[str, str, float, bool, bool]]:
    """What happened, for comparisons."""
    return [(s.observation.text, s.action, s.reward, s.terminated, s.truncated) for s in record.steps]
