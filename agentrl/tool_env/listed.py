"""A tool environment that lists its actions, for short prompts and for answers restricted to listed actions."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from agentrl.env import Snapshots, Verdict
from agentrl.tool_env.instance import SnapshotToolEnv, ToolEnv
from agentrl.types import Observation, StepResult, Task


class Listed:
    """A wrapper that lists `choices()` as actions in every observation of a running episode, if `lists` is true.

    A tool environment whose class has a method `_actions` lists actions without a wrapper. Use this class to list them
    under some configurations only, or to add entries to `info`.

    Args:
        inner: the tool environment.
        lists: True lists the actions; False returns the observations of `inner` unchanged.
        info: entries that are added to every step's `info`.
    """

    def __init__(self, inner: ToolEnv, *, lists: bool, info: Mapping[str, Any] | None = None) -> None:
        self.inner, self.lists, self._info = inner, lists, dict(info or {})
        inner.lists = False  # only this wrapper lists actions

    def choices(self) -> Iterable[str]:
        """The actions that may be taken now; an action that occurs twice is listed once.

        By default, they come from the method `_choices()` of the environment's object (a public method would be a
        tool).
        """
        actions: Iterable[str] = self.inner.instance._choices()
        return actions

    def reset(self, task: Task) -> Observation:
        """Start the task."""
        return self._listed(self.inner.reset(task))

    def step(self, action: str) -> StepResult:
        """Carry out calls, or take the answer."""
        result = self.inner.step(action)
        return result._replace(observation=self._listed(result.observation), info={**result.info, **self._info})

    def cut(self) -> Verdict:
        """The verdict on an episode that a limit ended, without a final answer."""
        return self.inner.cut()

    def close(self) -> None:
        """Close the inner environment."""
        self.inner.close()

    def snapshot(self) -> Any:
        """A snapshot of the inner environment; None if this environment has no snapshots."""
        return self.inner.snapshot() if isinstance(self.inner, Snapshots) else None

    def restore(self, snapshot: Any) -> Observation:
        """Go back to a snapshot."""
        assert isinstance(self.inner, SnapshotToolEnv), "without snapshots there is nothing to restore"
        return self._listed(self.inner.restore(snapshot))

    def _listed(self, observation: Observation) -> Observation:
        if not self.lists or self.inner.over or self.inner.instance is None:
            return observation
        return replace(observation, actions=self.inner.listed(self.choices(), "_choices"))
