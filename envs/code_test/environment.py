"""The environment: a tool environment over `Tester`. With the compact prompt it lists its actions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentrl.env import Env, Move, Prompt, random_share
from agentrl.envs import code_repair
from agentrl.envs._rows import MadeRows
from agentrl.envs.code_repair.environment import Compact as Words
from agentrl.envs.code_repair.workspace import runner_of
from agentrl.envs.code_test.tester import Config, Tester, hooks
from agentrl.tool import action as tool_action
from agentrl.tool_env import Listed, RowTasks
from agentrl.types import Observation, Task

EXPERTS = ("expert", "careless", "random")
STATEMENT = """\
Is the code of this repository right? Its docstrings say what it is to do, and the files called test_....py are a
beginning. Checks that you do not see decide. Files: {files}.
When you know, call report."""


class CodeTest(Listed):
    """The tester's environment; with the compact prompt every observation but the last one lists the actions."""

    def __init__(self, config: Config) -> None:
        """Raises ValueError if no sandbox works on this machine."""
        told = {"sandbox": runner_of(config).backend}
        super().__init__(hooks.make(config), lists=config.prompt == "compact", info=told)  # type: ignore[arg-type]


class Compact(Words):
    """The compact prompt of `code_repair`; a report is written as `passes` or `fails`, and its finding."""

    def answer(self, action: str) -> str:
        """The call in words."""
        turn = tool_action.read(action)
        item = turn.items[0] if len(turn.items) == 1 else None
        if getattr(item, "name", "") != "report":
            return super().answer(action)
        arguments: Mapping[str, Any] = getattr(item, "arguments", {})
        verdict = "passes" if arguments.get("passes") else "fails"
        return f"{verdict} {arguments.get('finding', '')}".strip()


class _Both(MadeRows):
    """Rows of `code_repair`'s tasks, each once with its mistakes and once with the task's `fixes` made."""

    def __init__(self, listed: Sequence[Task]) -> None:
        self._listed = listed

    def __len__(self) -> int:
        return 2 * len(self._listed)

    def _make(self, i: int) -> Mapping[str, Any]:
        task, mended = self._listed[i // 2], i % 2 == 1
        files = dict(task.params["files"])
        for path, old, new in task.params["fixes"] if mended else ():
            files[path] = files[path].replace(old, new, 1)
        key = f"{task.key.partition('/')[2]}/{'right' if mended else 'wrong'}"
        return {"key": key, "kind": kind(task), **ask(files, task.params["hidden"])}


def ask(files: Mapping[str, str], hidden: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the task of testing these files."""
    return {"statement": STATEMENT.format(files=", ".join(sorted(files))), "files": dict(files), "hidden": dict(hidden)}


def kind(task: Task) -> str:
    """The kind of a task in tables, as in `code_repair`; right code has the kind of the mistake that was undone."""
    return str(task.params.get("kind", "code_test"))


def tasks(config: Config) -> RowTasks:
    """The tasks of a configuration; ValueError if there are none."""
    return RowTasks(_Both(code_repair.tasks(config)), "code_test", "all", config.test_share)


def prompt(config: Config) -> Prompt:
    """The prompt: how the environment speaks to a model."""
    return Compact() if config.prompt == "compact" else hooks.prompt(config)


class Player:
    """Runs the tests, then reports the first failure that they print, or that the code passes. With probability `slips`
    it takes a random action of the compact form instead."""

    def __init__(self, env: CodeTest, seed: int, slips: float) -> None:
        self._env, self._seed, self._slips = env, seed, slips
        self._rng = np.random.default_rng(seed)

    def reset(self, task: Task) -> None:
        """Seed by the task."""
        self._rng = np.random.default_rng([self._seed, *task.key.encode()])

    def act(self, observation: Observation) -> Move:
        """The next call."""
        instance: Tester = self._env.inner.instance
        if self._rng.random() < self._slips:
            offered = instance._choices()
            return Move(offered[int(self._rng.integers(len(offered)))])
        if not instance._seen:
            return Move(tool_action.call("run_tests"))
        failed = instance._failures()
        if failed:
            return Move(tool_action.call("report", passes=False, finding=failed[0]))
        return Move(tool_action.call("report", passes=True))


def expert(env: Env, name: str, seed: int) -> Player:
    """`expert`, `careless:P` (a random action with probability P, by default 0.3), or `random` (as careless:1)."""
    assert isinstance(env, CodeTest)
    return Player(env, seed, random_share(name, "code_test", EXPERTS))
