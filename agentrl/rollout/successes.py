"""Stores solved episodes as data, so that chains of the same task can begin at later states of these episodes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentrl.chat import shorten
from agentrl.graph import PLAYED
from agentrl.rollout.branch import Opening, OpeningTurn, StateMismatch
from agentrl.rollout.records import EpisodeRecord, same_state
from agentrl.types import LEFT_OUT, Observation, Task


class Success(NamedTuple):
    """The turns of a solved episode, from the task's beginning."""

    turns: tuple[OpeningTurn, ...]

    @classmethod
    def of(cls, record: EpisodeRecord) -> "Success | None":
        """The turns of a chain, including the turns of its opening.

        None if the chain failed or was called by an agent. None also if the chain called agents, because the replies of
        these agents are not part of its answers.
        """
        if record.ending in LEFT_OUT or not record.success or record.called or record.caller is not None:
            return None
        own = [
            OpeningTurn(step.generation.text, tuple(step.generation.token_ids.tolist()), same_state(step.observation))
            for step in record.steps
        ]
        return cls((*record.opening, *own))

    def opening(self, start: int) -> Opening | None:
        """The opening that leads to turn `start`, counted from 0; None for the task's beginning."""
        return Opening(turns=self.turns[:start], state=self.turns[start].state) if start > 0 else None

    def dump(self) -> list[list[Any]]:
        """As JSON values."""
        return [[turn.answer, list(turn.token_ids), turn.state] for turn in self.turns]

    @classmethod
    def load(cls, rows: Sequence[Sequence[Any]]) -> "Success":
        """The success from the JSON values that `dump` returned."""
        return cls(tuple(OpeningTurn(answer, tuple(ids), state) for answer, ids, state in rows))


def check_start(task: Task, observation: Observation, state: str, turn: int) -> None:
    """Raises StateMismatch if the state differs from the state that an earlier episode reached with the same answers.

    Args:
        task: the task of both episodes.
        observation: what the environment shows now.
        state: the state that the earlier episode had after these answers.
        turn: number of answers that were carried out.
    """
    now = same_state(observation)
    if now != state:
        raise StateMismatch(
            f"task {task.key}, brought to turn {turn} by the answers of an earlier episode, shows "
            f"{shorten(repr(now), 80)} instead of {shorten(repr(state), 80)}: start states need an environment "
            "whose steps are deterministic"
        )


def by_group(records: Sequence[EpisodeRecord]) -> Mapping[int, list[EpisodeRecord]]:
    """Group -> its scored chains of kind PLAYED; groups without such chains are left out."""
    groups: dict[int, list[EpisodeRecord]] = {}
    for record in records:
        if record.kind == PLAYED and record.ending not in LEFT_OUT:
            groups.setdefault(record.group, []).append(record)
    return groups


def success_rate(records: Sequence[EpisodeRecord]) -> float:
    """The share of solved chains, 0 to 1."""
    return sum(record.success for record in records) / len(records)
