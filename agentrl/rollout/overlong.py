"""Tasks whose first prompt leaves no token for an answer: their episodes are left out, and too many of them stop a run.

Such an episode ends with `Status.OVERLONG_PROMPT` before its first step. It is neither scored nor trained. The largest
share of such tasks is `limits.fault_share`, as it is for faults.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentrl.env import ENDLESS
from agentrl.rollout.records import EpisodeRecord
from agentrl.types import Status, Task

TRIES = 10  # groups that a batch may leave out, per group of the batch, and so many more
SEEN = 100  # tasks that are drawn before the share of tasks that are drawn from a list without end is judged


def is_overlong(record: EpisodeRecord) -> bool:
    """Did the chain end because its first prompt leaves no token for an answer?"""
    return record.ending == Status.OVERLONG_PROMPT


def why_no_room(record: EpisodeRecord, size: int, limit: int | None, sampled: int) -> str:
    """The sentence on a prompt that leaves no token for an answer of a chain without a step of its own.

    Args:
        record: the chain.
        size: number of tokens of the prompt.
        limit: largest number of tokens of the prompt and its answer together; None for no limit.
        sampled: number of tokens that were sampled before.

    Raises:
        ValueError: the prompt would fit, but the chain may not sample a single token.
    """
    which = f"prompt of turn {len(record.steps)}" if record.steps else "first prompt"
    whose = f"the {which} of task {record.task.key}"
    if limit is None or size < limit:
        raise ValueError(
            f"{whose} comes after {sampled} sampled tokens, and no more are allowed: raise limits.episode_tokens"
        )
    return f"{whose} has {size} tokens, the model's context is {limit}: raise engine.max_context, or shorten the prompt"


def overlong_counts(records: Iterable[EpisodeRecord]) -> dict[str, int]:
    """The sentence on each task whose first prompt does not fit -> number of its chains."""
    return dict(Counter(record.reason for record in records if is_overlong(record)).most_common())


def overlong_share(records: Sequence[EpisodeRecord], left_out: Sequence[EpisodeRecord]) -> dict[str, float]:
    """The metric `overlong_prompt_share`: such chains, divided by all chains; empty if there are none.

    Args:
        records: the chains of a batch.
        left_out: the chains of the groups that are not in the batch, because none of their first prompts fits.
    """
    every = [*records, *left_out]
    count = sum(map(is_overlong, every))
    return {"overlong_prompt_share": count / len(every)} if count else {}


def stop_on_overlong(records: Sequence[EpisodeRecord], share: float) -> None:
    """Raises ValueError if more than `share` of these chains ended before their first step (`OVERLONG_PROMPT`)."""
    found = [record for record in records if is_overlong(record)]
    if len(found) > share * len(records):
        raise ValueError(too_many(len(found), len(records), "episodes", share, found[-1].reason))


def too_many(count: int, of: int, what: str, share: float, last: str) -> str:
    """The sentence on too many tasks or episodes (`what`) whose first prompt does not fit; `last` is one reason."""
    return (
        f"the first prompts of {count} of {of} {what} leave no token for an answer, the limit is {share:.0%} "
        f"(limits.fault_share); for example, {last}"
    )


class LeftOut:
    """The groups that are left out of a batch, because none of their first prompts fits the model's context.

    Args:
        tasks: number of groups of the batch. The batch may leave out `TRIES` times this number, and `TRIES` groups
            more, so that a batch in which no prompt fits ends.

    Attributes:
        records: the records of these groups.
    """

    def __init__(self, tasks: int) -> None:
        self.records: list[EpisodeRecord] = []
        self._most, self._groups = TRIES * (tasks + 1), 0

    def rest(self, groups: Sequence[list[EpisodeRecord]]) -> list[list[EpisodeRecord]]:
        """The groups that are not left out.

        Raises:
            ValueError: the batch leaves out too many groups.
        """
        kept = [group for group in groups if not (group and all(map(is_overlong, group)))]
        self._groups += len(groups) - len(kept)
        self.records += [record for group in groups if group and all(map(is_overlong, group)) for record in group]
        if self._groups > self._most:
            raise ValueError(
                f"{self._groups} groups of one batch were left out, because their first prompts leave no token for an "
                f"answer; the last reason: {self.records[-1].reason}"
            )
        return kept


class OverlongTasks:
    """The training tasks of a run that were left out so far, because their first prompts do not fit.

    Args:
        tasks: the training tasks.
        checked: were the first prompts of these tasks measured when the run began?
        share: largest share of such tasks.
    """

    def __init__(self, tasks: Sequence[Task], checked: bool, share: float) -> None:
        self._size = len(tasks) if len(tasks) <= ENDLESS else None
        self._checked, self._share = checked, share
        self._drawn: set[str] = set()
        self._overlong: set[str] = set()

    def add(self, records: Sequence[EpisodeRecord], left_out: Sequence[EpisodeRecord]) -> None:
        """Count the tasks of a batch, and of the groups that were left out of it.

        If the first prompts were measured before, or the list of tasks is short, the share is that of all tasks.
        Otherwise it is that of the tasks drawn so far, but of at least `SEEN` tasks.

        Raises:
            ValueError: the share is above the limit.
        """
        self._drawn |= {record.task.key for record in (*records, *left_out)}
        self._overlong |= {record.task.key for record in left_out}
        of = max(len(self._drawn), SEEN)
        if self._size is not None:
            of = self._size if self._checked else min(of, self._size)
        if left_out and len(self._overlong) > self._share * of:
            drawn = "tasks" if of == self._size else f"tasks that were drawn, counted as at least {SEEN},"
            raise ValueError(too_many(len(self._overlong), of, drawn, self._share, left_out[-1].reason))

    def state_dict(self) -> dict[str, Any]:
        """The keys of the tasks that were drawn and of those left out, for a checkpoint."""
        return {"drawn": sorted(self._drawn), "overlong": sorted(self._overlong)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state that `state_dict` returned."""
        self._drawn, self._overlong = set(state["drawn"]), set(state["overlong"])
