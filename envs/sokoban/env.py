"""Sokoban as an environment: one level per task."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from agentrl.envs.sokoban.generate import Level, lost
from agentrl.envs.sokoban.rules import ACTIONS, Room, State, apply, draw, legal, solved
from agentrl.types import Observation, Status, StepResult, Task

Reward = Literal["dense", "terminal"]
GOAL = "Push every box onto a target."


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """An episode at one point."""

    task: Task
    state: State
    steps: int
    pushes: int


class SokobanEnv:
    """Sokoban in text.

    Args:
        open_level: a function from a task to its level.
        max_steps: moves after which an episode is truncated; None for no limit.
        reward: `dense` (see `rules`), or `terminal`: 1 when every box is on a target, else 0.
        masked: list only the moves that change something as admissible; if False, or if there is none, list all four.
        moves_per_turn: largest number of moves of one action, separated by commas; further moves are ignored.
        end_when_lost: end the episode, unsolved, when `lost` finds that a box is stuck.
        border: draw the walls around the room.
    """

    def __init__(
        self,
        open_level: Callable[[Task], Level],
        *,
        max_steps: int | None = 30,
        reward: Reward = "dense",
        masked: bool = False,
        moves_per_turn: int = 1,
        end_when_lost: bool = False,
        border: bool = True,
    ) -> None:
        self._open, self._max_steps, self._reward, self._masked = open_level, max_steps, reward, masked
        self._moves_per_turn, self._end_when_lost = moves_per_turn, end_when_lost
        self._border = border
        self._task: Task | None = None
        self._level: Level | None = None
        self._state: State | None = None
        self._steps = self._pushes = 0

    @property
    def room(self) -> Room:
        """The room in play.

        Raises:
            ValueError: no level was started.
        """
        if self._level is None:
            raise ValueError("no Sokoban level was started: call reset(task) first")
        return self._level.room

    @property
    def state(self) -> State:
        """Where player and boxes are now.

        Raises:
            ValueError: no level was started.
        """
        if self._state is None:
            raise ValueError("no Sokoban level was started: call reset(task) first")
        return self._state

    def reset(self, task: Task) -> Observation:
        """Start the task's level."""
        self._task, self._level = task, self._open(task)
        self._state, self._steps, self._pushes = self._level.start, 0, 0
        return self.observation()

    def step(self, action: str) -> StepResult:
        """Carry out a move, or several. A word that is no move changes nothing and counts as a move."""
        words = [word.strip().lower() for word in action.split(",")][: self._moves_per_turn]
        known = all(word in ACTIONS for word in words)
        reward = 0.0
        for word in words:
            reward += self._move(word)
            if solved(self.room, self.state) or self._out_of_steps():
                break
        won = solved(self.room, self.state)
        stuck = not won and lost(self.room, self.state)
        ended = won or (stuck and self._end_when_lost)
        if self._reward == "terminal":
            reward = float(won)
        status = Status.OK if known else Status.PARSE_ERROR
        info = {**self.info(), "lost": stuck, "status": status}
        return StepResult(self.observation(), reward, ended, self._out_of_steps() and not ended, info)

    def info(self) -> dict[str, Any]:
        """`success`, number and share of the boxes on targets, and the numbers of moves (`steps`) and pushes so far."""
        on = len(self.state.boxes & self.room.targets)
        return {
            "success": solved(self.room, self.state),
            "boxes_on_target": on,
            "box_share": on / len(self.state.boxes),
            "steps": self._steps,
            "pushes": self._pushes,
        }

    def observation(self) -> Observation:
        """The grid. It is also the state key, because it shows the whole situation."""
        grid = draw(self.room, self.state, self._border)
        actions = (legal(self.room, self.state) or ACTIONS[:4]) if self._masked else ACTIONS[:4]
        return Observation(text=grid, state_key=grid, actions=actions, task=GOAL)

    def snapshot(self) -> Snapshot:
        """The episode's state."""
        assert self._task is not None
        return Snapshot(task=self._task, state=self.state, steps=self._steps, pushes=self._pushes)

    def restore(self, snapshot: Snapshot) -> Observation:
        """Go back to a snapshot of any instance that opens the same levels; returns the observation there."""
        if self._level is None or snapshot.task != self._task:
            self._task, self._level = snapshot.task, self._open(snapshot.task)
        self._state, self._steps, self._pushes = snapshot.state, snapshot.steps, snapshot.pushes
        return self.observation()

    def close(self) -> None:
        """Forget the level."""
        self._task = self._level = self._state = None

    def _move(self, word: str) -> float:
        moved = apply(self.room, self.state, word)
        self._state = moved.state
        self._steps += 1
        self._pushes += moved.pushed
        return moved.reward

    def _out_of_steps(self) -> bool:
        return self._max_steps is not None and self._steps >= self._max_steps
