"""Counts the faults of environments, services and scores in a batch, and raises an error if there are too many."""

from collections import Counter
from collections.abc import Sequence

from agentrl.rollout.player import TooManyFaults
from agentrl.rollout.records import EpisodeRecord
from agentrl.types import Status


def fault_counts(records: Sequence[EpisodeRecord]) -> dict[str, int]:
    """Fault -> number of chains that it ended, the most frequent fault first.

    The chains of called agents count too.
    """
    ended = (chain for record in records for chain in record.chains() if chain.ending == Status.ENV_ERROR)
    return dict(Counter(chain.fault for chain in ended).most_common())


def stop_on_faults(records: Sequence[EpisodeRecord], share: float) -> None:
    """Raises TooManyFaults if faults (of the environment, a service or a score) ended more than `share` of the chains.

    The chains of called agents count too. A chain with `EpisodeRecord.beside` has no environment of its own. Such a
    chain counts only if it ended with ENV_ERROR, for example because it could not be scored.
    """
    every = (chain for record in records for chain in record.chains())
    chains = [chain for chain in every if not chain.beside or chain.ending == Status.ENV_ERROR]
    lost = [r for r in chains if r.ending == Status.ENV_ERROR]
    if len(lost) > share * len(chains):
        raise TooManyFaults(
            f"a fault of the environment, of a service or of a score ended {len(lost)} of {len(chains)} episodes "
            f"(called agents' episodes count too), the limit is {share:.0%}: repair what failed, or raise "
            f"limits.fault_share; the last fault, on task {lost[-1].task.key}: {lost[-1].fault}"
        )
