"""Tool environments that list their actions: as long as an episode goes on, each once."""

from typing import Any

import pytest

from agentrl.tool import action as tool_action
from agentrl.tool_env import Listed, SnapshotToolEnv, environment


class Counter:
    """Count to two."""

    def reset(self) -> str:
        self.at = 0
        return "at 0"

    def up(self) -> str:
        """Count."""
        self.at += 1
        return f"at {self.at}"

    def reward(self, answer: str) -> float:
        return float(answer == "2")

    def _choices(self) -> list[str]:
        up = tool_action.call("up")
        return [up, tool_action.answer(str(self.at)), up]


hooks = environment(Counter, snapshots=True, module=__name__)


def make(*, lists: bool) -> Listed:
    inner: Any = hooks.make(hooks.Config())
    assert isinstance(inner, SnapshotToolEnv)
    return Listed(inner, lists=lists, info={"sandbox": "none"})


def test_actions_are_listed_once_while_the_episode_goes_on():
    env = make(lists=True)
    up = tool_action.call("up")
    assert env.reset(hooks.tasks(hooks.Config())[0]).actions == (up, tool_action.answer("0"))
    result = env.step(up)
    assert result.observation.actions == (up, tool_action.answer("1")) and result.info["sandbox"] == "none"
    kept = env.snapshot()
    env.step(up)
    assert env.restore(kept).actions == (up, tool_action.answer("1"))
    env.step(up)
    last = env.step(tool_action.answer("2"))
    assert last.terminated and last.reward == 1 and last.observation.actions == ()


@pytest.mark.parametrize("action", [tool_action.call("up"), "words"])
def test_without_it_observations_are_those_below(action):
    plain, below = make(lists=False), hooks.make(hooks.Config())
    task = hooks.tasks(hooks.Config())[0]
    assert plain.reset(task) == below.reset(task)
    assert plain.step(action).observation == below.step(action).observation
