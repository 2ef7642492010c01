"""An environment in one file: guess a number between 1 and 8 in three turns, told higher or lower each time."""

from collections.abc import Sequence

from pydantic import BaseModel

from agentrl.env import Observation, StepResult, Task

NUMBERS = tuple("12345678")


class Config(BaseModel, frozen=True, extra="forbid"):
    """Options of the recipe's section [env]."""

    turns: int = 3


class Guess:
    """The environment: `reset` starts a task, `step` carries out an action."""

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def reset(self, task: Task) -> Observation:
        self.number, self.left, self.low, self.high = task.seed % 8 + 1, self.turns, 1, 8
        return self.observe("Guess a number. It is from 1 to 8.")

    def step(self, action: str) -> StepResult:
        self.left -= 1
        if action not in NUMBERS:  # an answer of a model may be anything: say what is expected, and go on
            return StepResult(self.observe("That is no number from 1 to 8."), 0.0, False, self.left == 0, {})
        guess = int(action)
        won = guess == self.number
        if guess < self.number:
            self.low = max(self.low, guess + 1)
        else:
            self.high = min(self.high, guess - 1)
        text = "Higher." if guess < self.number else "Lower."
        text = "Right." if won else f"{text} It is from {self.low} to {self.high}."
        return StepResult(self.observe(text), float(won), won, not won and self.left == 0, {"success": won})

    def observe(self, text: str) -> Observation:
        # The key says which episodes are in the same state: GiGPO compares what they did there.
        key = f"{self.low}-{self.high}, {self.left} left"
        return Observation(text=text, actions=NUMBERS, state_key=key)

    def close(self) -> None:
        """Nothing to close."""


def make(config: Config) -> Guess:
    """An instance of the environment."""
    return Guess(config.turns)


def tasks(config: Config) -> Sequence[Task]:
    """Eight tasks, one per number."""
    return [Task(key=f"guess/{i}", env="guess", seed=i) for i in range(8)]
