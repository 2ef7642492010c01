"""An agent that has others do its work: it reads a plan, one word per turn, and calls whom the word says.

Actions: `walk` calls agent `walker` on a corridor, `both` calls it twice, `boss` calls agent `boss` (which may
call again), `broken` calls agent `faulty`, `done` ends. What comes back is told in words; `done` earns what the last
reply did.
"""

from collections.abc import Sequence

from pydantic import BaseModel

from agentrl.types import AgentCall, AgentReply, Observation, Status, StepResult, Task

ACTIONS = ("walk", "both", "boss", "broken", "done")  # and `stranger`, who is in no recipe


class Config(BaseModel, frozen=True, extra="forbid"):
    """count: tasks."""

    count: int = 2


class Boss:
    def __init__(self) -> None:
        self.words, self.reward, self.task = "", 0.0, Task(key="", env="")

    def reset(self, task: Task) -> Observation:
        self.words, self.reward, self.task = "What now?", 0.0, task
        return self.observe()

    def observe(self) -> Observation:
        return Observation(text=self.words, actions=ACTIONS)

    def errands(self, action: str) -> tuple[AgentCall, ...]:
        corridor = Task(key=f"{self.task.key}/corridor", env="walk", seed=self.task.seed)
        match action:
            case "walk":
                return (AgentCall("walker", corridor),)
            case "both":
                return (AgentCall("walker", corridor), AgentCall("walker", corridor))
            case "boss":
                return (AgentCall("boss", self.task),)
            case "broken":
                return (AgentCall("faulty", Task(key="broken", env="faulty", params={"fault": "raise", "at": 0})),)
            case "stranger":
                return (AgentCall("nobody", corridor),)
        return ()

    def step(self, action: str) -> StepResult:
        errands = self.errands(action)
        done = action == "done"
        reward = self.reward if done else 0.0
        info = {"errands": errands} if errands else {"success": reward > 0, "answer": f"worth {reward:g}"}
        return StepResult(self.observe(), reward, done, False, info)

    def returned(self, replies: tuple[AgentReply, ...]) -> StepResult:
        told = ["failed" if r.status == Status.ENV_ERROR else f"{r.status.name.lower()} {r.text}" for r in replies]
        self.words, self.reward = "; ".join(told), replies[-1].reward
        return StepResult(self.observe(), 0.0, False, False, {"success": False})

    def close(self) -> None:
        pass


def make(config: Config) -> Boss:
    return Boss()


def tasks(config: Config) -> Sequence[Task]:
    return [Task(key=f"boss/{i}", env="boss", seed=i) for i in range(config.count)]
