"""A quiz of sums with two tries per question. It keeps every law, or breaks the one that `Config.fault` names."""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agentrl.env import Bare, Move
from agentrl.types import Observation, Status, StepResult, Task

EXPERTS = ("expert",)


class Config(BaseModel, frozen=True, extra="forbid"):
    fault: str = ""
    count: int = 8


class Quiz:
    asked = 0  # of the class: the fault `instances` counts here

    def __init__(self, config: Config) -> None:
        self.fault = config.fault
        self.files: list[Any] = []

    def reset(self, task: Task) -> Observation:
        self.tries, self.over, self.number = 0, False, 3 if self.fault == "tasks" else task.params["number"]
        self.answer = str(self.number + 100)
        Quiz.asked = self.number
        if self.fault == "release":
            KEPT.append(Path(__file__).open())  # noqa: SIM115
        text = f"{self.number} + 100 = ?"
        if self.fault == "hash seed":
            text += "".join({"red", "green", "blue", "black", "white", "pink", "grey", "brown"})
        if self.fault == "shown":
            text += f" (answer: {self.answer})"
        return Observation(text=text, state_key=self.answer if self.fault == "state key" else "")

    def step(self, action: str) -> StepResult:
        again = self.over
        self.tries += 1
        won = self._right(action)
        self.over = won or self.tries == 2
        number = Quiz.asked if self.fault == "instances" else self.number
        info: dict[str, Any] = {"success": won}
        if self.fault == "info":
            info["target"] = self.answer
        if self.fault == "graded" and "FINAL" in action:
            info["status"] = Status.TOOL_ERROR
        reward = float(won)
        if again:
            reward = 1.0 if self.fault == "end" else 0.0
        if self.fault == "order":
            reward = -reward
        return StepResult(Observation(text=f"{number} + 100 is another number."), reward, self.over, False, info)

    def _right(self, action: str) -> bool:
        if self.fault == "any text":
            return bool(action.strip())
        if self.fault == "another":
            return action.isdigit()
        if self.fault == "lists":
            return self.answer in re.findall(r"\d+", action)
        if self.fault == "right":
            return action == f"{self.answer}.0"
        return action == self.answer

    def close(self) -> None:
        pass


KEPT: list[Any] = []


class Knower:
    def __init__(self, env: Quiz) -> None:
        self.env = env

    def reset(self, task: Task) -> None:
        pass

    def act(self, observation: Observation) -> Move:
        return Move(self.env.answer)


def expert(env: Quiz, name: str, seed: int) -> Knower:
    return Knower(env)


def prompt(config: Config) -> Bare:
    return Bare()


def make(config: Config) -> Quiz:
    return Quiz(config)


def tasks(config: Config) -> Sequence[Task]:
    numbers = random.Random(0).sample(range(100, 800), config.count)
    return [Task(key=f"quiz/{i}", env="quiz", params={"number": n}) for i, n in enumerate(numbers)]
