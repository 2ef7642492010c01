"""Independent chains: `batch.copies` episodes of each task.

Formula: `batch.copies` chains per task.

Source: none; independent samples, as in GRPO.
"""

from agentrl.rollout import EpisodeRecord, Expansion, RolloutOptions

UNEVEN = True


class Config(RolloutOptions, frozen=True):
    """No options beyond those of every rollout method."""


def leaves(config: Config, copies: int) -> int:
    """Scored episodes per task."""
    return copies


async def rollout(config: Config, batch: Expansion, copies: int) -> list[EpisodeRecord]:
    """See `agentrl.rollout.expansion`."""
    return await batch.begin(1, groups=batch.spread(copies))
