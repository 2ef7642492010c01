"""Independent chains: `batch.copies` episodes of each task."""

from agentrl.rollout import EpisodeRecord, Expansion, RolloutOptions

UNEVEN = True


class Config(RolloutOptions, frozen=True):
    """No options of its own."""


def leaves(config: Config, copies: int) -> int:
    """Scored episodes a task."""
    return copies


async def rollout(config: Config, batch: Expansion, copies: int) -> list[EpisodeRecord]:
    """See `agentrl.rollout.expansion`."""
    return await batch.begin(1, groups=batch.spread(copies))
