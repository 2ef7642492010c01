"""Arithmetic word problems with a calculator: a class of a few lines as a tool environment, graded by steps."""

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from agentrl import tool_action
from agentrl.env import Env, Move
from agentrl.tool_env import ToolConfig, environment
from agentrl.types import Observation, Task

EXPERTS = ("expert", "stepwise", "hasty")
NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gil", "Hana")
THINGS = ("apples", "books", "coins", "marbles", "pens", "shells", "stamps", "tickets")
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
CARELESS = 0.3  # how often `hasty` forgets a step


class Problem(ToolConfig, frozen=True):
    """steps: of a problem, which make it hard. largest: number in it. count: problems. first: seed of the first."""

    steps: int = Field(2, ge=1, le=8)
    largest: int = Field(50, ge=4)
    count: int = Field(1000, ge=1)
    first: int = Field(0, ge=0)


class Calculator:
    """A problem; its tool is the catalogue's calculator."""

    weights = {"called": 0.0}  # noqa: RUF012  a metric

    def reset(self, seed: int, steps: int, largest: int) -> str:
        self.story, parts = write(seed, steps, largest)
        self.target = str(solve(parts))
        return f"{self.story} Answer with the number alone."

    def reward(self, answer: str) -> float:
        found = NUMBER.findall(answer)
        return float(bool(found) and found[-1].replace(",", "") == self.target)

    def reward_called(self, calls: Any) -> float:
        return float(any(call.ok for call in calls))


def rows(config: Problem) -> list[Mapping[str, Any]]:
    """One row a seed."""
    return [
        {
            "id": f"{config.steps}-{config.largest}-{seed}",
            "seed": seed,
            "steps": config.steps,
            "largest": config.largest,
        }
        for seed in range(config.first, config.first + config.count)
    ]


Config, make, tasks, prompt = environment(Calculator, rows=rows, tools=["calculator"], config=Problem)


def write(seed: int, steps: int, largest: int) -> tuple[str, list[tuple[str, int]]]:
    """A story and its steps: (sign, number), the first from nothing; what is left is never negative."""
    rng = random.Random(f"calculator {seed} {steps} {largest}")
    (name, other), thing = rng.sample(NAMES, 2), rng.choice(THINGS)
    parts = [("+", rng.randint(2, largest))]
    words = [f"{name} has {parts[0][1]} {thing}."]
    for _ in range(steps):
        have, number = solve(parts), rng.randint(2, largest)
        kind = rng.choice(("buys", "boxes", "gives", "doubles") if have > 1 else ("buys", "boxes"))
        if kind == "buys":
            parts.append(("+", number))
            words.append(f"{name} buys {number} more.")
        elif kind == "boxes":
            each = rng.randint(2, 9)
            parts += [("+", number * each)]
            words.append(f"{name} finds {each} boxes with {number} {thing} each.")
        elif kind == "gives":
            number = rng.randint(1, min(number, have - 1))
            parts.append(("-", number))
            words.append(f"{name} gives {number} to {other}.")
        else:
            number = rng.randint(2, 4)
            parts.append(("*", number))
            words.append(f"Then {name} wins a bet and has {number} times as many.")
    return f"{' '.join(words)} How many {thing} does {name} have now?", parts


def solve(parts: list[tuple[str, int]]) -> int:
    """What is left after the steps."""
    total = 0
    for sign, number in parts:
        total = total + number if sign == "+" else total - number if sign == "-" else total * number
    return total


class Player:
    """Calls the calculator, then answers with what it said.

    `expert` writes the whole expression, `stepwise` one call a step, `hasty` one expression that now and then lacks a
    step.
    """

    def __init__(self, name: str, seed: int) -> None:
        self._name, self._seed = name, seed

    def reset(self, task: Task) -> None:
        """Read the problem."""
        row = task.params
        _, parts = write(row["seed"], row["steps"], row["largest"])
        rng = random.Random(f"hasty {self._seed} {task.key}")
        if self._name == "hasty":
            parts = parts[:1] + [part for part in parts[1:] if rng.random() >= CARELESS]
        self._calls = self._expressions(parts)
        self._first = True

    def _expressions(self, parts: list[tuple[str, int]]) -> Iterator[str]:
        if self._name == "stepwise":
            for before, (sign, number) in enumerate(parts[1:], 1):
                yield f"{solve(parts[:before])} {sign} {number}"
            return
        text = str(parts[0][1])
        for sign, number in parts[1:]:
            text = f"({text}) * {number}" if sign == "*" else f"{text} {sign} {number}"
        yield text

    def act(self, observation: Observation) -> Move:
        """The next call, or the last result."""
        expression = next(self._calls, None)
        if expression is None:
            return Move(tool_action.answer(observation.text))
        return Move(tool_action.call("calculator", expression=expression))


def expert(env: Env, name: str, seed: int) -> Player:
    """A demonstrator."""
    if name not in EXPERTS:
        raise ValueError(f"calculator has no expert {name!r}: known are {', '.join(EXPERTS)}")
    return Player(name, seed)


def kind(task: Task) -> str:
    """Tabled by the number of steps."""
    return f"{task.params['steps']} steps"
