"""Branch points: the moments an episode can be played on from, and an environment's way back to them.

An environment goes back by `snapshot` and `restore` where it has them, else its task is reset and the recorded actions
are carried out again. Either way what it then shows is compared with what was seen at the point.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

from agentrl.chat import shorten
from agentrl.env import Handle
from agentrl.rollout.context import History
from agentrl.types import EnvFault, Observation, Task


class StateMismatch(EnvFault):
    """The environment went back to a point and shows something else there. Trying again would not help."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """The moment before an answer.

    Attributes:
        history: what the context policy sees, as a copy that later turns do not change.
        session: the engine's session whose cache holds `history.path`.
        sampled: tokens sampled on the path so far.
        snapshot: the environment's state; None where it gives none, and its actions are carried out again.
    """

    history: History
    session: int
    sampled: int
    snapshot: Any = None

    @classmethod
    async def mark(cls, handle: Handle, history: History, session: int, sampled: int) -> "Point":
        """The point where an episode stands now."""
        snapshot = await handle.snapshot()
        return cls(history=own_copy(history), session=session, sampled=sampled, snapshot=snapshot)


def own_copy(history: History) -> History:
    """A history whose lists are its own."""
    values: dict[str, Any] = {f.name: getattr(history, f.name) for f in fields(history)}
    lists: dict[str, Any] = {name: list(value) for name, value in values.items() if isinstance(value, list)}
    return replace(history, **lists)


async def go_back(handle: Handle, task: Task, point: Point) -> int:
    """Bring an environment instance to a point.

    Returns:
        how many actions were carried out again.

    Raises:
        StateMismatch: it shows another text, state key or other actions than were seen there.
        EnvFault: it failed.
    """
    history = point.history
    if point.snapshot is not None:
        seen = await handle.restore(task, point.snapshot)
        if seen is not None:
            compare(seen, history.now, f"restored to turn {len(history.past)}")
            return 0
    seen = await handle.reset(task)
    compare(seen, history.past[0].observation if history.past else history.now, "reset")
    for turn, past in enumerate(history.past, 1):
        result = await handle.step(past.action)
        if past.replies:
            result = await handle.step(past.replies)
        expected = history.past[turn].observation if turn < len(history.past) else history.now
        compare(result.observation, expected, f"brought to turn {turn} by its recorded actions")
        if result.terminated or result.truncated:
            raise StateMismatch(f"the recorded actions of task {task.key} ended the episode at turn {turn}")
    return len(history.past)


def compare(seen: Observation, expected: Observation, how: str) -> None:
    """Raises StateMismatch unless two observations are the same state to agent and environment."""
    for name in ("text", "state_key", "actions"):
        found, wanted = getattr(seen, name), getattr(expected, name)
        if found != wanted:
            shown, before = shorten(repr(found), 80), shorten(repr(wanted), 80)
            raise StateMismatch(f"the environment, {how}, shows {name} {shown}, there it was {before}")
