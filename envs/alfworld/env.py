"""ALFWorld as an environment: tasks, rewards, limits and snapshots around either engine."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from agentrl.envs.alfworld.engine import Engine
from agentrl.envs.alfworld.facts import Facts
from agentrl.envs.alfworld.goal import Wanted
from agentrl.envs.alfworld.subgoals import Progress, advance
from agentrl.envs.alfworld.words import TASK
from agentrl.types import Observation, StepResult, Task

StateKey = Literal["feedback", "observation", "facts"]


class Player(Protocol):
    """A game in play: what the native and the genuine engine have in common. `won`: the goal holds now."""

    won: bool

    @property
    def wanted(self) -> Wanted:
        """What the goal asks for."""
        ...

    def reset(self) -> str:
        """Go back to the start; returns the opening words."""
        ...

    def step(self, command: str) -> str:
        """Carry out a command; returns the answer."""
        ...

    def admissible(self) -> list[str]:
        """The commands that do something now, sorted."""
        ...

    def facts(self) -> Facts:
        """The agent-visible state."""
        ...

    def save(self) -> Any:
        """What `restore` needs, picklable."""
        ...

    def restore(self, saved: Any) -> None:
        """Go back to what was saved."""
        ...

    def close(self) -> None:
        """Release the game."""
        ...


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """An episode at one point; `saved` is what the engine needs to go back to it."""

    task: Task
    saved: Any
    text: str
    goal: str
    steps: int
    progress: Progress


class AlfworldEnv:
    """ALFWorld, one game per task.

    Args:
        play: opens a task's game. It must be picklable if the environment is to be pickled.
        state_key: which text is the key of a state. `feedback`: the game's last text, as in GiGPO's released code;
            `observation`: the game's last text and the admissible actions; `facts`: what the agent can see (the
            receptacles at its place with their doors and visible contents, the held object and its condition).
        max_steps: steps after which an episode is truncated; None for no limit.
        success_reward: reward of winning; published work uses 10. A step is paid the change of the score (0 or 1)
            times `success_reward`, so undoing a win takes the reward back.
        subgoal_reward: reward of each sub-goal of the task type, in addition to `success_reward`. A sub-goal is paid
            once per episode, see `agentrl.envs.alfworld.subgoals`. 0: none. Sub-goals do not count as success.
        alias_put: also accept the older release's "put X in/on Y" where a game says "move X to Y".
    """

    def __init__(
        self,
        play: Callable[[Task], Player],
        *,
        state_key: StateKey = "facts",
        max_steps: int | None = 50,
        success_reward: float = 1.0,
        subgoal_reward: float = 0.0,
        alias_put: bool = False,
    ) -> None:
        self._play = play
        self._state_key = state_key
        self._max_steps = max_steps
        self._success_reward = success_reward
        self._subgoal_reward = subgoal_reward
        self._alias_put = alias_put
        self._task: Task | None = None
        self._player: Player | None = None
        self._text = self._goal = ""
        self._steps = 0
        self._progress = Progress()

    @property
    def player(self) -> Player:
        """The game in play.

        Raises:
            ValueError: no game was started.
        """
        if self._player is None:
            raise ValueError("no ALFWorld game was started: call reset(task) first")
        return self._player

    @property
    def engine(self) -> Engine:
        """The native engine in play, for experts that read the full state.

        Raises:
            ValueError: no game was started, or the genuine engine plays it.
        """
        if not isinstance(self.player, Engine):
            raise ValueError("the genuine engine plays this game and its state cannot be read: set game_engine=native")
        return self.player

    def reset(self, task: Task) -> Observation:
        """Start the task's game."""
        self._open(task)
        self._text = self.player.reset()
        self._goal = self._text.rpartition(TASK)[2]
        self._steps = 0
        observation = self._observe()
        self._progress = self._advanced(Progress(), observation)  # a sub-goal that holds at the start earns nothing
        return observation

    def step(self, action: str) -> StepResult:
        """Carry out one command. A win terminates the episode, but the game accepts further commands."""
        player = self.player
        before = player.won
        self._text = player.step(self._translate(action) if self._alias_put else action)
        self._steps += 1
        reward = self._success_reward * (player.won - before)
        over = self._max_steps is not None and self._steps >= self._max_steps
        observation = self._observe()
        progress = self._advanced(self._progress, observation)
        reward += self._subgoal_reward * (progress.done - self._progress.done)
        self._progress = progress
        return StepResult(observation, reward, player.won, over and not player.won, self.info())

    def info(self) -> dict[str, Any]:
        """`won` and `success`: the goal holds now; `score`: 0 or 1; `steps`: number of steps so far.

        If sub-goals are paid, also `subgoals`: how many were counted so far.
        """
        won = self.player.won
        told = {"success": won, "won": won, "score": int(won), "steps": self._steps}
        return {**told, "subgoals": self._progress.done} if self._subgoal_reward else told

    def snapshot(self) -> Snapshot:
        """The episode's state: for the native engine a few references, for the genuine one all commands."""
        saved = self.player.save()
        assert self._task is not None
        return Snapshot(
            task=self._task,
            saved=saved,
            text=self._text,
            goal=self._goal,
            steps=self._steps,
            progress=self._progress,
        )

    def restore(self, snapshot: Snapshot) -> Observation:
        """Go back to a snapshot of any instance that opens the same games; returns the observation there."""
        self._open(snapshot.task)
        self.player.restore(snapshot.saved)
        self._text, self._goal = snapshot.text, snapshot.goal
        self._steps, self._progress = snapshot.steps, snapshot.progress
        return self._observe()

    def observation(self) -> Observation:
        """The current observation again."""
        return self._observe()

    def close(self) -> None:
        """Release the game in play."""
        if self._player is not None:
            self._player.close()
        self._player = None
        self._task = None

    def _open(self, task: Task) -> None:
        if self._player is not None and task == self._task:
            return
        self.close()
        self._player = self._play(task)
        self._task = task

    def _observe(self) -> Observation:
        actions = tuple(self.player.admissible())
        return Observation(text=self._text, state_key=self._key(actions), actions=actions, task=self._goal)

    def _advanced(self, progress: Progress, observation: Observation) -> Progress:
        """`progress` with the sub-goals that hold now; unchanged if sub-goals are not paid."""
        if not self._subgoal_reward:
            return progress
        player = self.player
        return advance(progress, player.wanted, player.facts(), observation.actions, player.won)

    def _key(self, actions: tuple[str, ...]) -> str:
        match self._state_key:
            case "feedback":
                return self._text
            case "observation":
                return "\n".join((self._text, *actions))
        return self.player.facts().key()

    def _translate(self, action: str) -> str:
        """`put X in/on Y` as `move X to Y`, where that is admissible."""
        words = action.strip()
        if words.startswith("put ") and " in/on " in words:
            item, _, receptacle = words.removeprefix("put ").partition(" in/on ")
            moved = f"move {item} to {receptacle}"
            if moved in self.player.admissible():
                return moved
        return action
