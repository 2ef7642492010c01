"""Branch points: the moments from which an episode can be continued, and how an environment returns to them.

An environment returns by `snapshot` and `restore` if both give a result. Otherwise it is reset to the task, and the
recorded actions are carried out again. In both cases the observation after the return is compared with the recorded
observation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from agentrl.chat import shorten
from agentrl.env import Handle
from agentrl.rollout.context import History
from agentrl.types import EnvFault, Observation, Task


class OpeningTurn(NamedTuple):
    """An answer of an earlier episode, its token ids (empty without a tokenizer), and the state before the answer."""

    answer: str
    token_ids: tuple[int, ...]
    state: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Opening:
    """A start state as data: the first turns of an earlier episode, with which a new chain begins.

    The environment is reset and the answers are carried out again. The chain's first prompt is then the prompt that the
    earlier episode had at this state. The turns of the opening are not trained.

    Attributes:
        turns: the turns that are carried out before the chain begins; at least one.
        state: the state to which the turns lead, as `agentrl.rollout.same_state` names it.
    """

    turns: Sequence[OpeningTurn]
    state: str


class StateMismatch(EnvFault):
    """The environment could not be brought back to a recorded state.

    It shows another observation than the recorded one, or the recorded actions ended the episode or called agents. The
    chain is not played again, because another try would fail in the same way.
    """


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """The moment before an answer.

    Attributes:
        history: the episode so far, as a copy that later turns do not change.
        session: the engine's session whose cache holds `history.path`.
        sampled: number of tokens sampled on the path so far.
        snapshot: the environment's state. If None (the environment has no snapshots), the recorded actions are carried
            out again.
    """

    history: History
    session: int
    sampled: int
    snapshot: Any = None

    @classmethod
    async def mark(cls, handle: Handle, history: History, session: int, sampled: int) -> "Point":
        """The current point of an episode."""
        snapshot = await handle.snapshot()
        return cls(history=own_copy(history), session=session, sampled=sampled, snapshot=snapshot)


def own_copy(history: History) -> History:
    """A copy of a history that shares no list with it."""
    values: dict[str, Any] = {f.name: getattr(history, f.name) for f in fields(history)}
    lists: dict[str, Any] = {name: list(value) for name, value in values.items() if isinstance(value, list)}
    return replace(history, **lists)


async def go_back(handle: Handle, task: Task, point: Point) -> int:
    """Bring an environment instance to a point.

    Returns:
        Number of actions that were carried out again.

    Raises:
        StateMismatch: text, state key or actions of the environment's observation differ from the recorded ones, or the
            recorded actions ended the episode.
        EnvFault: the environment failed.
    """
    history = point.history
    if point.snapshot is not None:
        restored = await handle.restore(task, point.snapshot)
        if restored is not None:
            compare(restored, history.now, f"restored to turn {len(history.past)}")
            return 0
    first = await handle.reset(task)
    compare(first, history.past[0].observation if history.past else history.now, "reset")
    for turn, past in enumerate(history.past, 1):
        result = await handle.step(past.action)
        if past.replies:
            result = await handle.step(past.replies)
        expected = history.past[turn].observation if turn < len(history.past) else history.now
        compare(result.observation, expected, f"brought to turn {turn} by its recorded actions")
        if result.terminated or result.truncated:
            raise StateMismatch(f"the recorded actions of task {task.key} ended the episode at turn {turn}")
    return len(history.past)


def compare(observation: Observation, expected: Observation, how: str) -> None:
    """Raises StateMismatch if two observations differ in text, state key or actions.

    `how` says how the environment came to the observation.
    """
    for name in ("text", "state_key", "actions"):
        now, before = getattr(observation, name), getattr(expected, name)
        if now != before:
            raise StateMismatch(
                f"the environment, {how}, shows {name} {shorten(repr(now), 80)} instead of {shorten(repr(before), 80)}"
            )
