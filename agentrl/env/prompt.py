"""How an environment speaks to a model: the words of each turn, and what an answer means."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from agentrl.types import Observation, Reply, Status


class Parsed(NamedTuple):
    """An answer as the environment will get it.

    `valid` is the format flag of the estimators (GiGPO's v); `status` is OK or PARSE_ERROR; `calls` counts the tool
    calls it asks for.
    """

    action: str
    valid: bool
    status: Status
    calls: int = 0


class Past(NamedTuple):
    """A turn already played: what was seen, the action that was sent, and what the agents it called brought back."""

    observation: Observation
    action: str
    replies: tuple[Reply, ...] = ()


class Shown(NamedTuple):
    """How a prompt presents tools: the system message, and the schemas left to the chat template."""

    system: str
    tools: tuple[Mapping[str, Any], ...] = ()


class Prompt(Protocol):
    """The words of one environment. Context policies (`algorithms/context`) decide which of them are used.

    Two attributes may be added: `continues = True` says that later observations are written into the running assistant
    turn as they are, without a turn of their own (answers then carry no end token); `stop = ("</search>",)` names the
    strings that end an answer, where the configuration names none. A prompt for tools adds a method,
    `show(observation, chat) -> Shown`: `chat` is the tokenizer's template, None for policies that read messages.
    """

    system: str

    def first(self, observation: Observation) -> str:
        """The user message of turn 0."""
        ...

    def turn(self, observation: Observation) -> str:
        """A later user message where the whole chat is kept."""
        ...

    def window(self, first: Observation, past: Sequence[Past], done: int, observation: Observation) -> str:
        """The single user message where the chat is rebuilt at each step.

        Args:
            first: the observation of turn 0 (it holds the task).
            past: the last k turns, oldest first.
            done: number of turns played so far, >= len(past).
            observation: the current one.
        """
        ...

    def answer(self, action: str) -> str:
        """The assistant text that means this action (for demonstrators and for choices)."""
        ...

    def parse(self, text: str, observation: Observation) -> Parsed:
        """What an assistant text means; never raises."""
        ...


def continues(prompt: Prompt) -> bool:
    """Are later observations written into the running assistant turn?"""
    return bool(getattr(prompt, "continues", False))


def stops(prompt: Prompt) -> tuple[str, ...]:
    """The strings that end an answer in this environment's words."""
    return tuple(getattr(prompt, "stop", ()))


class Plain:
    """Observation as the user message, the stripped answer as the action."""

    system = ""

    def first(self, observation: Observation) -> str:
        """Task, if stated apart, then the observation and the admissible actions."""
        return "\n".join(part for part in (observation.task, self.turn(observation)) if part)

    def turn(self, observation: Observation) -> str:
        """The observation and, where listed, the admissible actions."""
        listed = f"\nActions: {', '.join(observation.actions)}" if observation.actions else ""
        return observation.text + listed

    def window(self, first: Observation, past: Sequence[Past], done: int, observation: Observation) -> str:
        """Task, the last turns as numbered lines, and the current observation."""
        start = done - len(past) + 1
        lines = [f"Step {start + i}: {p.observation.text} -> {p.action}" for i, p in enumerate(past)]
        return "\n".join([part for part in (first.task,) if part] + lines + [self.turn(observation)])

    def answer(self, action: str) -> str:
        """The action itself."""
        return action

    def parse(self, text: str, observation: Observation) -> Parsed:
        """Valid unless empty."""
        action = text.strip()
        return Parsed(action, bool(action), Status.OK if action else Status.PARSE_ERROR)


class Bare(Plain):
    """The text of the observation alone as the user message; actions as in `Plain`."""

    def first(self, observation: Observation) -> str:
        """The text."""
        return observation.text

    def turn(self, observation: Observation) -> str:
        """The text."""
        return observation.text
