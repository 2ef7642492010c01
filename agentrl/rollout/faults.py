"""Faults of the environment in a batch: counts, and an error if there are too many."""

from collections import Counter
from collections.abc import Sequence

from agentrl.rollout.player import TooManyFaults
from agentrl.rollout.records import EpisodeRecord
from agentrl.types import Status


def fault_counts(records: Sequence[EpisodeRecord]) -> dict[str, int]:
    """Fault of the environment -> number of chains that it ended, the most frequent fault first.

    The chains of called agents count too.
    """
    ended = (chain for record in records for chain in record.chains() if chain.ending == Status.ENV_ERROR)
    return dict(Counter(chain.fault for chain in ended).most_common())


def stop_on_faults(records: Sequence[EpisodeRecord], share: float) -> None:
    """Raises TooManyFaults if the environment failed in more than `share` of the chains.

    The chains of called agents count too. A chain with `EpisodeRecord.beside` has no environment of its own. It is left
    out, unless it ended with ENV_ERROR because it could not be scored.
    """
    every = (chain for record in records for chain in record.chains())
    chains = [chain for chain in every if not chain.beside or chain.ending == Status.ENV_ERROR]
    lost = [r for r in chains if r.ending == Status.ENV_ERROR]
    if len(lost) > share * len(chains):
        raise TooManyFaults(
            f"the environment failed in {len(lost)} of {len(chains)} rollouts, the limit is {share:.0%}: repair the "
            f"environment, or raise limits.fault_share; the last fault, on task {lost[-1].task.key}: {lost[-1].fault}"
        )
