"""A corridor that breaks one promise, chosen by `Config.lie`."""

import random
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from agentrl.env import Parsed, Plain
from agentrl.types import AgentCall, Observation, Status, StepResult, Task
from tests.toys import walk
from tests.toys.walk import EXPERTS, Snapshot, Straight, Walk

__all__ = ["EXPERTS", "Config", "Liar", "expert", "make", "prompt", "tasks"]


class Config(BaseModel, frozen=True, extra="forbid"):
    lie: str = ""
    count: int = 3
    goal: int = 0


class Words(Plain):
    def __init__(self, lie: str) -> None:
        self.lie = lie

    def parse(self, text: str, observation: Observation) -> Parsed:
        if self.lie == "parse raises" and not text.isascii():
            raise UnicodeError("ascii only")
        parsed = super().parse(text, observation)
        return parsed._replace(action=parsed.action.upper()) if self.lie == "round trip" else parsed


class Liar(Walk):
    episodes = 0

    def reset(self, task: Task) -> Observation:
        self.over = False
        self.episodes += 1
        seen = super().reset(task)
        if self.config.lie == "leftover":
            return Observation(text=f"{seen.text} Episode {self.episodes}.", actions=seen.actions)
        if self.config.lie == "chance":
            return Observation(text=f"{seen.text} Weather: {random.random()}.", actions=seen.actions)
        if self.config.lie == "observation":
            return seen.text  # type: ignore[return-value]
        return seen

    def step(self, action: str) -> StepResult:
        lie: Any = self.config.lie
        if lie == "after the end" and self.over:
            raise RuntimeError("it is over")
        if lie == "garbage" and action not in walk.ACTIONS:
            raise KeyError(action)
        seen, reward, terminated, truncated, info = super().step(action)
        self.over = terminated
        if lie == "reward":
            reward = float("nan")
        if lie == "errands":
            info = {"errands": (AgentCall("nobody", Task(key="errand", env="liar")),)}
        if lie == "refuses":
            info = {"status": Status.TOOL_ERROR}
        return StepResult(seen, reward, terminated, truncated, info)

    def snapshot(self) -> Snapshot:
        place, *rest = super().snapshot()
        return (place + (self.config.lie == "snapshot"), *rest)

    def restore(self, snapshot: Snapshot) -> Observation:
        self.over = False
        seen = super().restore(snapshot)
        if self.config.lie == "restored":
            return Observation(text=seen.text)
        return None if self.config.lie == "blind" else seen

    def __getstate__(self) -> dict[str, Any]:
        if self.config.lie == "pickle":
            raise TypeError("cannot pickle a lock")
        return dict(self.__dict__)


def prompt(config: Config) -> Words:
    return Words(config.lie)


def expert(env: Liar, name: str, seed: int) -> Straight:
    if env.config.lie == "expert":
        raise NotImplementedError(name)
    return Straight()


def make(config: Config) -> Liar:
    return Liar(config)  # type: ignore[arg-type]


made: list[int] = []


def tasks(config: Config) -> Sequence[Task]:
    if config.lie == "list":
        made.append(0)
    twice = config.lie == "keys"
    params = {1: (2, 3)} if config.lie == "params" else {"pair": (2, 3)}
    return [
        Task(key="same" if twice else f"liar/{i}", env="liar", seed=i + len(made), params=params)  # type: ignore[arg-type]
        for i in range(config.count)
    ]
