"""The environment: a tool environment over `Repository`. With the compact prompt it lists its actions."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.env import Env, Move, Prompt, Verdict, random_share
from agentrl.envs.code_repair.environment import Compact as RepairCompact
from agentrl.envs.code_repair.mutate import Mutation
from agentrl.envs.code_repair.workspace import unique_edit
from agentrl.envs.code_repo.mistakes import mistakes, same_meaning
from agentrl.envs.code_repo.repository import Config, Repository, definitions, runner_of
from agentrl.tool import Call, action as tool_action
from agentrl.tool_env import Listed, environment
from agentrl.types import Observation, StepResult, Task

SYSTEM = (
    "You repair a repository. Look at its files, change them, run commands and the tests, and call submit when done."
)
EXPERTS = ("expert", "careless", "random")
SIGNALS = ("solved", "share", "similarity", "forged", "tests_edited")

hooks = environment(
    Repository,
    rows=[],
    config=Config,
    system=SYSTEM,
    weights=dict.fromkeys(SIGNALS, 0.0),
    snapshots=True,
    module=__name__,
)
make = hooks.make  # bound in this module, where unpickling looks for it


class CodeRepo(Listed):
    """The environment; the last step's `info["result"]` is the patch. With the compact prompt every observation but the
    last one of an episode lists the actions."""

    def __init__(self, config: Config) -> None:
        """Raises ValueError if no sandbox works on this machine."""
        told = {"sandbox": runner_of(config).backend}
        super().__init__(hooks.make(config), lists=config.prompt == "compact", info=told)  # type: ignore[arg-type]

    @property
    def repository(self) -> Repository:
        """The repository of the episode."""
        found: Repository = self.inner.instance
        return found

    def choices(self) -> list[str]:
        """The actions that the function `choices` finds for the present repository."""
        return choices(self.repository)

    def step(self, action: str) -> StepResult:
        """Carry out calls, or take the answer."""
        was_over = self.inner.over
        result = super().step(action)
        if was_over or not self.inner.over:
            return result
        return result._replace(info={**result.info, "result": self.repository._patch()})

    def cut(self) -> Verdict:
        """For an episode that a limit ended: the verdict that its files would get if they were handed in."""
        was_over = self.inner.over
        found = super().cut()
        return found if was_over else Verdict(found.reward, {**found.info, "result": self.repository._patch()})


def choices(repository: Repository) -> list[str]:
    """The actions of the compact form: hand in, run the tests, view a definition, or make one of the single changes of
    the definition that was viewed last."""
    found = [tool_action.call("submit"), tool_action.call("run_tests")]
    for path in repository._code():
        names = definitions(repository._files[path])
        found += [tool_action.call("view_definition", path=path, name=name) for name in names]
    path, name = repository._shown
    source = repository._files.get(path, "")
    if name in definitions(source):
        found += [_edit(path, source, one) for one in mistakes(source, definitions(source)[name])]
    return found


def _edit(path: str, source: str, change: Mutation) -> str:
    old, new = unique_edit(source, change.start, change.end, change.text)
    return tool_action.call("str_replace", path=path, old=old, new=new)


class Compact(RepairCompact):
    """The compact prompt of `code_repair`, and `view PATH NAME` for a definition."""

    edit = "str_replace"

    def answer(self, action: str) -> str:
        """The call in words."""
        items = tool_action.read(action).items
        if len(items) == 1 and isinstance(items[0], Call) and items[0].name == "view_definition":
            arguments = items[0].arguments
            return f"view {arguments.get('path', '')} {arguments.get('name', '')}"
        return super().answer(action)


def prompt(config: Config) -> Prompt:
    """The prompt: how the environment speaks to a model."""
    return Compact() if config.prompt == "compact" else hooks.prompt(config)


class Player:
    """Knows the answer: it makes the task's `fixes` through the tools, runs the tests and hands in. In the compact form
    it makes the listed changes that mean the same, and leaves out a fix that has none. With probability `slips` it
    takes a random action of the compact form instead. If a slip made a listed change impossible, it hands in."""

    def __init__(self, env: CodeRepo, seed: int, slips: float) -> None:
        self._env, self._seed, self._slips = env, seed, slips
        self._rng, self._plan = np.random.default_rng(seed), list[str]()

    def reset(self, task: Task) -> None:
        """Plan the calls."""
        self._rng = np.random.default_rng([self._seed, *task.key.encode()])
        self._plan = []
        for path, old, new in task.params["fixes"]:
            source = task.params["files"].get(path, "")
            if self._env.lists:
                self._plan += self._listed(path, source, old, new)
            elif old and source.count(old) == 1 and old != source:
                self._plan.append(tool_action.call("str_replace", path=path, old=old, new=new))
            else:
                self._plan.append(tool_action.call("create", path=path, content=new))
        self._plan += [tool_action.call("run_tests"), tool_action.call("submit")]

    def act(self, observation: Observation) -> Move:
        """The next call."""
        offered = choices(self._env.repository) if self._slips or self._env.lists else []
        if self._slips and self._rng.random() < self._slips:
            return Move(offered[int(self._rng.integers(len(offered)))])
        action = self._plan.pop(0) if self._plan else tool_action.call("submit")
        if self._env.lists and action not in offered:
            again = self._seen_again(action)
            if again not in offered:
                return Move(tool_action.call("submit"))
            self._plan.insert(0, action)
            action = again
        return Move(action)

    def _listed(self, path: str, source: str, old: str, new: str) -> list[str]:
        """The calls that view the definition with the mistake and make the listed change that means the same as a fix.

        Empty if there is no such change.
        """
        at = source.find(old)
        if at < 0 or not old:
            return []
        wanted = source.replace(old, new, 1)
        change = next(same_meaning(source, at, at + len(old), wanted), None)
        if change is None:
            return []
        names = definitions(source)
        name = next((n for n, (begin, end) in names.items() if begin <= change.start and change.end <= end), "")
        view = tool_action.call("view_definition", path=path, name=name)
        return [view, _edit(path, source, change)] if name else []

    def _seen_again(self, action: str) -> str:
        """The call that views the definition of a change again.

        A change is listed only while its definition is in view, and a slip may have viewed another definition. Empty if
        the definition is in view, or if no definition contains the text to replace.
        """
        turn = tool_action.read(action)
        arguments: Mapping[str, Any] = getattr(turn.items[0], "arguments", {}) if turn.items else {}
        path, old = str(arguments.get("path", "")), str(arguments.get("old", ""))
        source = self._env.repository._files.get(path, "")
        at = source.find(old)
        names = definitions(source)
        name = next((n for n, (begin, end) in names.items() if old and begin <= at < end), "")
        looks_there = self._env.repository._shown == (path, name)
        return "" if looks_there or not name else tool_action.call("view_definition", path=path, name=name)


def expert(env: Env, name: str, seed: int) -> Player:
    """`expert`, `careless:P` (a random action with probability P, by default 0.3), or `random` (as careless:1)."""
    assert isinstance(env, CodeRepo)
    return Player(env, seed, random_share(name, "code_repo", EXPERTS))
