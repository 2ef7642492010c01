"""A tool environment: sums, with tools that add, fail, wait, print a lot, and end the episode."""

import asyncio
import time
from typing import Annotated, Any

from pydantic import Field

from agentrl.env import Env, Move
from agentrl.tool import ToolFault, action as tool_action
from agentrl.tool_env import environment
from agentrl.types import Observation, Task

EXPERTS = ("expert",)


class Sums:
    weights = {"format": 0.5, "length": 0.0}  # noqa: RUF012  a plain class, as a user writes it

    def reset(self, a: int, b: int) -> str:
        self.a, self.b, self.done, self.seen = a, b, False, 0
        return f"What is {a} + {b}?"

    def add(self, a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: the first
            b: the second
        """
        self.seen += 1
        return a + b

    def fail(self, how: str = "raise") -> str:
        """Fail."""
        if how == "lost":
            raise ToolFault("no service")
        if how == "hang":
            time.sleep(60)
        raise KeyError("oops")

    async def wait(self, seconds: Annotated[float, Field(ge=0, le=0.3)], words: str) -> str:
        """Wait."""
        await asyncio.sleep(seconds)
        if words == "fail":
            raise RuntimeError("waited for nothing")
        return words

    def shout(self, times: int) -> str:
        """Say a lot."""
        return "ha" * times

    def give_up(self) -> str:
        """End the episode."""
        self.done = True
        return "bye"

    def reward(self, answer: str) -> float:
        return float(answer == str(self.a + self.b))

    def reward_format(self, answer: str, calls: Any) -> dict[str, float]:
        return {"format": float(answer.isdecimal()), "length": float(len(calls))}

    def step_reward_calls(self, calls: Any) -> float:
        return 0.125 * len(calls)


class Expert:
    def reset(self, task: Task) -> None:
        self.row = task.params

    def act(self, observation: Observation) -> Move:
        total = self.row["a"] + self.row["b"]
        if observation.text == str(total):
            return Move(tool_action.answer(str(total)))
        return Move(tool_action.call("add", a=self.row["a"], b=self.row["b"]))


def expert(env: Env, name: str, seed: int) -> Expert:
    if name not in EXPERTS:
        raise ValueError(f"sums has no expert {name!r}")
    return Expert()


Config, make, tasks, prompt = environment(Sums, rows=[{"a": a, "b": b} for a in range(4) for b in range(5)])
