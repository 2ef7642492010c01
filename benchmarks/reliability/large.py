"""An environment that says too much: observations of millions of characters, or thousands of actions in every step."""

from collections.abc import Sequence

from pydantic import BaseModel, Field

from agentrl.types import Observation, StepResult, Task

LENGTH = 3


class Config(BaseModel, frozen=True, extra="forbid"):
    """chars: characters of an observation. actions: how many each step lists. count: number of tasks."""

    chars: int = Field(100, ge=1)
    actions: int = Field(2, ge=1)
    count: int = 1000


class Large:
    """See the module."""

    def __init__(self, config: Config) -> None:
        self.config, self.steps = config, 0

    def reset(self, task: Task) -> Observation:
        """Begin."""
        self.steps = 0
        return self.observe()

    def observe(self) -> Observation:
        """Other texts and other actions in every step, so that no cache helps."""
        words = f"page {self.steps} "
        text = (words * (self.config.chars // len(words) + 1))[: self.config.chars]
        actions = tuple(f"choose item {self.steps} {i}" for i in range(self.config.actions))
        return Observation(text=text, actions=actions)

    def step(self, action: str) -> StepResult:
        """LENGTH steps, then a reward."""
        self.steps += 1
        over = self.steps == LENGTH
        return StepResult(self.observe(), float(over), over, False, {"success": over})

    def close(self) -> None:
        """Nothing to release."""


def make(config: Config) -> Large:
    """An instance."""
    return Large(config)


def tasks(config: Config) -> Sequence[Task]:
    """Tasks that do not differ."""
    return [Task(key=f"large/{i}", env="benchmarks.reliability.large", seed=i) for i in range(config.count)]
