"""The customer of `desk` as an agent: one reply to what the agent at the desk said.

With user = "agent", `desk` sends each message of its agent here, as a task of this environment. A language model plays
the customer if `[agents.user]` names it; otherwise the expert does, which is the scripted customer. A reply that
contains ###STOP### ends the conversation, as in tau-bench.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, Field

from agentrl.chat import without_thoughts
from agentrl.env import Env, Move, Parsed, PastTurn
from agentrl.envs.desk.customer import STOP, Mood, opening, reply
from agentrl.envs.desk.environment import case_of, row
from agentrl.types import Observation, Status, StepResult, Task

ERRING: dict[str, int] = {}
EXPERTS = ("expert",)
GYMNASIUM_IDS: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
HELLO = "Hello. How can I help you?"
RULES = (
    "You are a customer who talks to an agent at a service desk. Reply with one message, in one line. Tell only what "
    "the agent asks for, and state one request after the other. If the agent asks for what you do not know, say that "
    "you do not know it; make up nothing. Do not repeat your instruction word by word. When all you want is settled "
    f"or was refused, reply {STOP} and nothing else."
)


class Config(BaseModel, frozen=True, extra="forbid"):
    """The tasks of this environment if it is played alone: the customer's first replies in generated tasks of `desk`.

    Attributes:
        domain: domain of the tasks of `desk`.
        split: part of the tasks of `desk`: train, valid or test.
        count: number of tasks.
    """

    domain: Literal["retail", "bookings"] = "retail"
    split: Literal["train", "valid", "test"] = "train"
    count: int = Field(100, ge=1)


class Customer:
    """One reply per task."""

    def __init__(self) -> None:
        self.task = Task(key="", env="desk_user")
        self.over = False

    def reset(self, task: Task) -> Observation:
        """Start with the conversation so far."""
        self.task, self.over = task, False
        return self.observation()

    def observation(self) -> Observation:
        """The conversation as text, and the customer's instruction as the task."""
        said: Sequence[Sequence[str]] = self.task.params.get("said", [])
        lines = [f"{who}: {text}" for pair in said for who, text in zip(("Agent", "You"), pair, strict=True) if text]
        return Observation(text="\n".join(lines), task=str(self.task.params.get("instruction", "")))

    def step(self, action: str) -> StepResult:
        """The reply ends the episode. It counts as a success if it is not empty; nothing else is judged."""
        info = {"success": bool(action.strip()), "answer": action.strip()}
        self.over = True
        return StepResult(self.observation(), 0.0, True, False, info)

    def snapshot(self) -> tuple[Task, bool]:
        """The task, and whether the customer has replied."""
        return self.task, self.over

    def restore(self, snapshot: tuple[Task, bool]) -> Observation:
        """Go back to the state of a snapshot."""
        self.task, self.over = snapshot
        return self.observation()

    def close(self) -> None:
        """Nothing to release."""


class Words:
    """The rules as the system message, the customer's instruction and the conversation as the user message."""

    system = RULES

    def first(self, observation: Observation) -> str:
        """The instruction and the conversation."""
        return f"Who you are and what you want: {observation.task}\n\n{observation.text}"

    def turn(self, observation: Observation) -> str:
        """The same text as `first`: an episode has one turn."""
        return self.first(observation)

    def window(self, first: Observation, past: Sequence[PastTurn], done: int, observation: Observation) -> str:
        """The same text as `first`."""
        return self.first(observation)

    def answer(self, action: str) -> str:
        """The reply."""
        return action

    def parse(self, text: str, observation: Observation) -> Parsed:
        """The reply is the first line that is not blank, without a leading `You:`."""
        lines = (one.strip() for one in without_thoughts(text).splitlines())
        line = next(filter(None, lines), "").removeprefix("You:").strip()
        return Parsed(line, bool(line), Status.OK if line else Status.PARSE_ERROR)


class Scripted:
    """The scripted customer. It finds its place in the conversation by replying to all the agent's messages again."""

    def __init__(self) -> None:
        self._task = Task(key="", env="desk_user")

    def reset(self, task: Task) -> None:
        """Take a task, which is a point of a conversation."""
        self._task = task

    def act(self, observation: Observation) -> Move:
        """The reply to the agent's last message."""
        goal, mood = self._task.params["goal"], Mood()
        said = [content for content, _ in self._task.params["said"]]
        text = opening(goal)
        for content in said[1:]:
            text, mood, _ = reply(goal, mood, content)
        return Move(text)


def make(config: Config) -> Customer:
    """An instance."""
    return Customer()


def tasks(config: Config) -> list[Task]:
    """The customer's first reply to "Hello. How can I help you?", one task per generated task of `desk`."""
    found = []
    for number in range(config.count):
        made = row(config.domain, 2, config.split, number)
        case = case_of(made["made"])
        params = {"instruction": case.instruction, "goal": dict(case.goal), "said": [[HELLO, ""]]}
        found.append(Task(key=f"desk_user/{made['key']}", env="desk_user", seed=number, params=params))
    return found


def prompt(config: Config) -> Words:
    """The prompt: how the environment speaks to a model."""
    return Words()


def expert(env: Env, name: str, seed: int) -> Scripted:
    """`expert`, the scripted customer."""
    if name not in EXPERTS:
        raise ValueError(f"unknown desk_user player {name!r}: use expert")
    return Scripted()
