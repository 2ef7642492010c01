"""Faults of the environment in a batch: counts, and the limit beyond which a batch is no use."""

from collections import Counter
from collections.abc import Sequence

from agentrl.rollout.player import TooManyFaults
from agentrl.rollout.records import EpisodeRecord
from agentrl.types import Status


def fault_counts(records: Sequence[EpisodeRecord]) -> dict[str, int]:
    """How many chains each fault of the environment ended, called agents' included, the most frequent first."""
    ended = (chain for record in records for chain in record.chains() if chain.ending == Status.ENV_ERROR)
    return dict(Counter(chain.fault for chain in ended).most_common())


def stop_on_faults(records: Sequence[EpisodeRecord], share: float) -> None:
    """Raises TooManyFaults if the environment failed in more than `share` of the chains, called agents' included."""
    chains = [chain for record in records for chain in record.chains()]
    lost = [r for r in chains if r.ending == Status.ENV_ERROR]
    if len(lost) > share * len(chains):
        raise TooManyFaults(
            f"the environment failed in {len(lost)} of {len(chains)} rollouts, the limit is {share:.0%}: repair the "
            f"environment, or raise limits.fault_share; the last fault, on task {lost[-1].task.key}: {lost[-1].fault}"
        )
