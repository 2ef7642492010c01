"""The environment: the writer's tools, and the errands that send its code to the tester."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from agentrl.env import Env, Move, Prompt, random_share
from agentrl.envs import code_repair
from agentrl.envs.code_pair.writer import PENDING, Config, Writer, hooks
from agentrl.envs.code_repair.environment import Compact
from agentrl.envs.code_repair.tasks import offered_edit, solvable
from agentrl.envs.code_repair.workspace import runner_of
from agentrl.envs.code_test.environment import EXPERTS
from agentrl.tool import Call, action as tool_action
from agentrl.tool_env import Listed, RowTasks, SnapshotToolEnv
from agentrl.types import AgentCall, AgentReply, Message, Observation, Status, StepResult, Task

__all__ = ["EXPERTS", "CodePair", "agents", "expert", "prompt", "tasks"]

TESTER = "tester"


class CodePair(Listed):
    """The environment of the writer. A turn that asks the tester ends when the tester has answered."""

    def __init__(self, config: Config) -> None:
        """Raises ValueError if no sandbox works on this machine."""
        told = {"sandbox": runner_of(config).backend}
        super().__init__(hooks.make(config), lists=config.prompt == "compact", info=told)  # type: ignore[arg-type]
        self._waiting: StepResult | None = None

    def reset(self, task: Task) -> Observation:
        """Lay out the task's files."""
        self._waiting = None
        return super().reset(task)

    def step(self, action: str) -> StepResult:
        """Carry out calls; a question to the tester becomes an errand."""
        result = super().step(action)
        writer: Writer = self.inner.instance
        if self.inner.over or not writer._asking:
            return result
        self._waiting = result
        key = f"{self.inner.task.key}/{len(writer._heard)}"
        errand = AgentCall(TESTER, Task(key=key, env="code_test", params=writer._question()))
        return result._replace(info={**result.info, "errands": (errand,)})

    def returned(self, replies: tuple[AgentReply, ...]) -> StepResult:
        """Put the tester's report in the place of the call's result."""
        assert self._waiting is not None, "nobody was asked"
        result, self._waiting = self._waiting, None
        told = finding(replies[0])
        writer: Writer = self.inner.instance
        writer._hear(told)
        seen = told_by(result.observation, told)
        assert isinstance(self.inner, SnapshotToolEnv), "the writer's tools can be copied"
        self.inner._seen = seen = replace(seen, actions=(), state_key=writer.state_key())
        return result._replace(observation=self._listed(seen))


def finding(reply: AgentReply) -> str:
    """The result of `ask_tester`: the tester's report in words, or that the tester failed or came to no conclusion."""
    if reply.status == Status.ENV_ERROR:
        return "The tester failed."
    turn = tool_action.read(reply.text)
    for item in turn.items if reply.status == Status.DONE else ():
        if isinstance(item, Call) and item.name == "report":
            verdict = "passes" if item.arguments.get("passes") is True else "fails"
            return f"{verdict}: {item.arguments.get('finding', '')}".rstrip(": ")
    return "The tester came to no conclusion."


def told_by(observation: Observation, told: str) -> Observation:
    """The observation with the tester's report in it."""
    messages = tuple(
        Message(m.role, told, m.name) if (m.name, m.content) == ("ask_tester", PENDING) else m
        for m in observation.messages
    )
    several = len(messages) > 1
    text = "\n".join(f"{m.name}: {m.content}" if several and m.name else m.content for m in messages)
    return replace(observation, text=text, messages=messages)


class Player:
    """Alternately asks the tester and undoes one of the task's mistakes. Hands in when the tester reports that the code
    passes, or when no mistake is left that it can undo. When it may ask no more, it only undoes mistakes. With
    probability `slips` it takes a random action of the compact form instead."""

    def __init__(self, env: CodePair, seed: int, slips: float) -> None:
        self._env, self._seed, self._slips = env, seed, slips
        self._rng, self._fixes = np.random.default_rng(seed), list[tuple[str, str, str]]()
        self._heard = 0

    def reset(self, task: Task) -> None:
        """Plan the changes."""
        self._rng = np.random.default_rng([self._seed, *task.key.encode()])
        self._fixes, self._heard = [tuple(fix) for fix in task.params["fixes"]], 0

    def act(self, observation: Observation) -> Move:
        """The next call."""
        writer: Writer = self._env.inner.instance
        if self._rng.random() < self._slips:
            offered = writer._choices()
            return Move(offered[int(self._rng.integers(len(offered)))])
        fresh, self._heard = len(writer._heard) > self._heard, len(writer._heard)
        if fresh and writer._heard[-1].startswith("passes"):
            return Move(tool_action.call("submit"))
        if not fresh and self._heard < writer._config.asks:
            return Move(tool_action.call("ask_tester"))
        if not self._fixes:
            return Move(tool_action.call("submit"))
        path, old, new = self._fixes.pop(0)
        if writer._config.prompt == "compact":
            pair = offered_edit(path, writer._now()[path], old, new)
            if pair is None:  # a careless change stands in its way
                return Move(tool_action.call("submit"))
            old, new = pair
        if writer._now().get(path) == old:
            return Move(tool_action.call("write_file", path=path, content=new))
        return Move(tool_action.call("replace", path=path, old=old, new=new))


class _Rows(Sequence[Mapping[str, Any]]):
    """Rows of `code_repair`'s tasks; a row is made when it is read."""

    def __init__(self, listed: Sequence[Task], chosen: Sequence[int]) -> None:
        self._listed, self._chosen = listed, chosen

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        task = self._listed[self._chosen[i]]
        return {**task.params, "key": task.key.partition("/")[2]}


def tasks(config: Config) -> RowTasks:
    """The tasks of `code_repair`, under this environment's name; with the compact prompt only those that listed changes
    can solve. ValueError if there are none."""
    return RowTasks(_rows(config), "code_pair", "all", config.test_share)


@functools.lru_cache(maxsize=8)
def _read_rows(section: str) -> _Rows:
    config = Config.model_validate_json(section)
    listed = code_repair.tasks(config)
    chosen = range(len(listed)) if config.prompt == "chat" else [i for i in range(len(listed)) if solvable(listed[i])]
    if not len(chosen):
        raise ValueError(f"no task of level {config.level} and programs {config.programs!r} has a listed solution")
    return _Rows(listed, chosen)


def _rows(config: Config) -> _Rows:
    return _read_rows(config.model_dump_json())


def agents(config: Config) -> Mapping[str, Mapping[str, Any]]:
    """The tester; its prompt, call format, sandbox and time limit are those of the writer."""
    own = config.model_dump(include={"prompt", "sandbox", "timeout_s", "call_format"})
    return {TESTER: {"env": {"name": "code_test", **own}, "expert": "expert", "limits": {"turns": 8}}}


def prompt(config: Config) -> Prompt:
    """The prompt of the writer."""
    return Compact() if config.prompt == "compact" else hooks.prompt(config)


def expert(env: Env, name: str, seed: int) -> Player:
    """`expert`, `careless:P` (a random action with probability P, by default 0.3), or `random` (as careless:1)."""
    assert isinstance(env, CodePair)
    return Player(env, seed, random_share(name, "code_pair", EXPERTS))
