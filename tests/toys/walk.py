"""A corridor: walk to the goal. Deterministic, lists its actions, can be snapshot."""

from collections.abc import Sequence

from pydantic import BaseModel

from agentrl.env import Env, Move
from agentrl.types import Observation, StepResult, Task

ACTIONS = ("left", "right")
Snapshot = tuple[int, int, int, str]
EXPERTS = ("straight",)
GYMNASIUM_IDS = {"toys/Walk-v0": {"goal": 3}}


class Config(BaseModel, frozen=True, extra="forbid"):
    """count: tasks. first: number of the first. goal: place of the goal; 0 puts it at 1 + the task's seed modulo 3."""

    count: int = 4
    first: int = 0
    goal: int = 0


class Walk:
    def __init__(self, config: Config) -> None:
        self.config, self.place, self.goal, self.steps, self.words = config, 0, 0, 0, ""

    def reset(self, task: Task) -> Observation:
        self.place, self.steps, self.words = 0, 0, ""
        self.goal = task.params.get("goal") or self.config.goal or 1 + task.seed % 3
        return self.observe()

    def observe(self) -> Observation:
        return Observation(text=f"{self.words}You are at {self.place}, the goal is {self.goal}.", actions=ACTIONS)

    def step(self, action: str) -> StepResult:
        self.steps += 1
        self.words = "" if action in ACTIONS else "What? "
        self.place += {"left": -1, "right": 1}.get(action, 0)
        won = self.place == self.goal
        return StepResult(self.observe(), float(won), won, False, {"success": won, "steps": self.steps})

    def snapshot(self) -> Snapshot:
        return self.place, self.goal, self.steps, self.words

    def restore(self, snapshot: Snapshot) -> Observation:
        self.place, self.goal, self.steps, self.words = snapshot
        return self.observe()

    def close(self) -> None:
        pass


class Straight:
    def reset(self, task: Task) -> None:
        pass

    def act(self, observation: Observation) -> Move:
        return Move("right")


def expert(env: Env, name: str, seed: int) -> Straight:
    if name not in EXPERTS:
        raise ValueError(f"walk has no expert {name!r}")
    return Straight()


def kind(task: Task) -> str:
    return f"goal {1 + task.seed % 3}"


def make(config: Config) -> Walk:
    return Walk(config)


def tasks(config: Config) -> Sequence[Task]:
    return [
        Task(key=f"walk/{i}", env="tests.toys.walk", seed=i) for i in range(config.first, config.first + config.count)
    ]
