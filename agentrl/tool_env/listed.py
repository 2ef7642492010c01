"""A tool environment that also lists its actions, for prompts in few words and answers masked to what may be done."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from agentrl.env import Verdict
from agentrl.tool_env.instance import SnapshotToolEnv
from agentrl.types import Observation, StepResult, Task


class Listed:
    """Every observation of an episode that goes on has the actions of `choices`, if `lists` says so.

    Args:
        inner: the tool environment.
        lists: whether actions are listed; without, observations are those of `inner`.
        info: what every step's `info` says besides.
    """

    def __init__(self, inner: SnapshotToolEnv, *, lists: bool, info: Mapping[str, Any] | None = None) -> None:
        self.inner, self.lists, self._told = inner, lists, dict(info or {})

    def choices(self) -> Iterable[str]:
        """Actions that may be taken now; by default what the environment's object gives as `_choices()` (a public
        method would be a tool). An action given twice is listed once."""
        found: Iterable[str] = self.inner.instance._choices()
        return found

    def reset(self, task: Task) -> Observation:
        """Start the task."""
        return self._listed(self.inner.reset(task))

    def step(self, action: str) -> StepResult:
        """Carry out calls, or take the answer."""
        result = self.inner.step(action)
        return result._replace(observation=self._listed(result.observation), info={**result.info, **self._told})

    def cut(self) -> Verdict:
        """The reward of an episode without an answer."""
        return self.inner.cut()

    def close(self) -> None:
        """Forget the episode."""
        self.inner.close()

    def snapshot(self) -> Any:
        """The task and what was done."""
        return self.inner.snapshot()

    def restore(self, snapshot: Any) -> Observation:
        """Go back to it."""
        return self._listed(self.inner.restore(snapshot))

    def _listed(self, observation: Observation) -> Observation:
        if not self.lists or self.inner.over or self.inner.instance is None:
            return observation
        return replace(observation, actions=tuple(dict.fromkeys(self.choices())))
