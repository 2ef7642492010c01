"""A foreman who may send a walker down a corridor, or give up: right is to send, then to say that it is done."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from agentrl.env import Env, Move
from agentrl.types import AgentCall, AgentReply, Observation, Status, StepResult, Task

ACTIONS = ("send", "done")
EXPERTS = ("straight",)


class Config(BaseModel, frozen=True, extra="forbid"):
    """count: tasks; those of another count are others."""

    count: int = 4


class Foreman:
    def __init__(self) -> None:
        self.arrived, self.task = False, Task(key="", env="")

    def reset(self, task: Task) -> Observation:
        self.arrived, self.task = False, task
        return Observation(text="Nobody was sent.", actions=ACTIONS)

    def step(self, action: str) -> StepResult:
        seen = Observation(text="Well?", actions=ACTIONS)
        if action == "send":
            errand = AgentCall("walker", Task(key=f"{self.task.key}/walk", env="walk", seed=self.task.seed))
            return StepResult(seen, 0.0, False, False, {"errands": (errand,)})
        return StepResult(seen, float(self.arrived), True, False, {"success": self.arrived})

    def returned(self, replies: tuple[AgentReply, ...]) -> StepResult:
        self.arrived = replies[0].status == Status.DONE and replies[0].reward > 0
        words = "The walker arrived." if self.arrived else "The walker is lost."
        return StepResult(Observation(text=words, actions=ACTIONS), 0.0, False, False, {"success": False})

    def close(self) -> None:
        pass


class Straight:
    def __init__(self) -> None:
        self.sent = False

    def reset(self, task: Task) -> None:
        self.sent = False

    def act(self, observation: Observation) -> Move:
        action = "done" if self.sent else "send"
        self.sent = True
        return Move(action)


def make(config: Config) -> Foreman:
    return Foreman()


def expert(env: Env, name: str, seed: int) -> Straight:
    return Straight()


def agents(config: Config) -> Mapping[str, Mapping[str, Any]]:
    return {"walker": {"env": {"name": "tests.toys.walk"}, "expert": "straight", "limits": {"turns": 4}}}


def tasks(config: Config) -> Sequence[Task]:
    return [Task(key=f"foreman/{config.count}/{i}", env="foreman", seed=i) for i in range(config.count)]
