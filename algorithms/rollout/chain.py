"""Independent chains: `batch.copies` episodes of each task."""

from pydantic import BaseModel

from agentrl.rollout import EpisodeRecord, Expansion

UNEVEN = True


class Config(BaseModel, frozen=True, extra="forbid"):
    """No options."""


def leaves(config: Config, copies: int) -> int:
    """Scored episodes a task."""
    return copies


async def rollout(config: Config, batch: Expansion, copies: int) -> list[EpisodeRecord]:
    """See `agentrl.rollout.expansion`."""
    return await batch.begin(1, groups=batch.spread(copies))
