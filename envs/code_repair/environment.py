"""The environment: a tool environment over `Workspace`. With the compact prompt it lists its actions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentrl.chat import without_thoughts
from agentrl.env import Bare, Env, Move, Parsed, PastTurn, Prompt, Verdict
from agentrl.envs.code_repair.tasks import changes, offered_edit
from agentrl.envs.code_repair.workspace import Config, Workspace, runner_of
from agentrl.tool import action as tool_action
from agentrl.tool_env import Listed, environment
from agentrl.types import Observation, Status, StepResult, Task

SYSTEM = "You repair Python code. Look at the files, change them, run the tests, and submit."
EXPERTS = ("expert", "random")

hooks = environment(
    Workspace,
    rows=[],
    config=Config,
    system=SYSTEM,
    weights={"solved": 0.0, "share": 0.0},
    snapshots=True,
    module=__name__,
)
make = hooks.make  # bound in this module, where unpickling looks for it


class CodeRepair(Listed):
    """The environment; with the compact prompt every observation but the last one of an episode lists the actions.

    If hidden checks failed, the last step's `info["result"]` says why, and `info["refused_checks"]` is the number of
    checks that failed because a value or an operation does not pass between the sandboxes (see `two_sandboxes`).
    """

    def __init__(self, config: Config) -> None:
        """Raises ValueError if no sandbox works on this machine."""
        told = {"sandbox": runner_of(config).backend}
        super().__init__(hooks.make(config), lists=config.prompt == "compact", info=told)  # type: ignore[arg-type]

    def step(self, action: str) -> StepResult:
        """Carry out calls, or take the answer."""
        result = super().step(action)
        return result._replace(info={**result.info, **self._failures()}) if self.inner.over else result

    def cut(self) -> Verdict:
        """The verdict on an episode that a limit ended, without a final answer."""
        verdict = super().cut()
        return Verdict(verdict.reward, {**verdict.info, **self._failures()})

    def _failures(self) -> dict[str, Any]:
        verdict = self.inner.instance._verdict if self.inner.instance else None
        if verdict is None or not verdict.failures:
            return {}
        return {"result": "; ".join(verdict.failures), "refused_checks": verdict.refused}

    @property
    def files(self) -> Mapping[str, str]:
        """The files as they are now."""
        return dict(self.inner.instance._files)

    def choices(self) -> list[str]:
        """The actions that the function `choices` finds for the present files."""
        return choices(self.files)


def choices(files: Mapping[str, str]) -> list[str]:
    """The actions of the compact form: hand in, run the tests, or make one of the `changes` of the files."""
    found = [tool_action.call("submit"), tool_action.call("run_tests")]
    return list(dict.fromkeys(found + changes(files)))


class Compact(Bare):
    """The compact prompt. A change is written as its old and its new text. Of the observations, only the first and the
    present one are shown."""

    edit = "replace"  # the tool that changes a file

    def window(self, first: Observation, past: Sequence[PastTurn], done: int, observation: Observation) -> str:
        """The first observation (files and failures), the last actions, and the present observation."""
        lines = [f"> {self.answer(p.action)}" for p in past]
        return "\n".join([first.text, *lines, observation.text] if done else [first.text])

    def answer(self, action: str) -> str:
        """The call in words."""
        turn = tool_action.read(action)
        if turn.answer is not None or len(turn.items) != 1:
            return action
        name, arguments = getattr(turn.items[0], "name", ""), getattr(turn.items[0], "arguments", {})
        if name != self.edit:
            return str(name).replace("_", " ")
        old, new = str(arguments.get("old", "")), str(arguments.get("new", ""))
        return f"replace in {arguments.get('path', '')}\n{old}\nby\n{new}"

    def parse(self, text: str, observation: Observation) -> Parsed:
        """The listed action that is written like the answer; without one, the status is `parse_error`."""
        said = without_thoughts(text).strip("\n")
        for action in observation.actions:
            if self.answer(action) == said:
                return Parsed(action, True, Status.OK)
        return Parsed(said.strip(), False, Status.PARSE_ERROR)


def prompt(config: Config) -> Prompt:
    """The prompt: how the environment speaks to a model."""
    return Compact() if config.prompt == "compact" else hooks.prompt(config)


class Repairer:
    """Knows the answer: it undoes the task's mistakes through the tools, runs the tests and hands in. In the compact
    form it takes the listed change that means the same. If there is none, it runs the tests and hands in the files as
    they are."""

    def __init__(self, env: CodeRepair) -> None:
        self._env, self._fixes, self._tested = env, list[tuple[str, str, str]](), False

    def reset(self, task: Task) -> None:
        """Plan the changes."""
        self._fixes, self._tested = [tuple(fix) for fix in task.params["fixes"]], False

    def act(self, observation: Observation) -> Move:
        """The next change, then the tests, then the hand-in."""
        if self._fixes:
            path, old, new = self._fixes.pop(0)
            if not self._env.lists and old == self._env.files.get(path):
                return Move(tool_action.call("write_file", path=path, content=new))
            if not self._env.lists:
                return Move(tool_action.call("replace", path=path, old=old, new=new))
            pair = offered_edit(path, self._env.files[path], old, new)
            if pair is not None:
                return Move(tool_action.call("replace", path=path, old=pair[0], new=pair[1]))
            self._fixes = []
        if not self._tested:
            self._tested = True
            return Move(tool_action.call("run_tests"))
        return Move(tool_action.call("submit"))


class Chance:
    """Any single change, the tests, or handing in, each as likely as any other."""

    def __init__(self, env: CodeRepair, seed: int) -> None:
        self._env, self._seed = env, seed
        self._rng = np.random.default_rng(seed)

    def reset(self, task: Task) -> None:
        """Seed by the task."""
        self._rng = np.random.default_rng([self._seed, *task.key.encode()])

    def act(self, observation: Observation) -> Move:
        """One of the compact form's actions."""
        offered = choices(self._env.files)
        return Move(offered[int(self._rng.integers(len(offered)))])


def expert(env: Env, name: str, seed: int) -> Any:
    """A player of this instance: expert or random."""
    assert isinstance(env, CodeRepair)
    if name not in EXPERTS:
        raise ValueError(f"code_repair has no expert {name!r}: known are {', '.join(EXPERTS)}")
    return Repairer(env) if name == "expert" else Chance(env, seed)
