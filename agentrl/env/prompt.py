"""Prompts turn observations into messages for a model, and the model's answers into actions."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from agentrl.chat import answer_start, without_thoughts
from agentrl.env.labels import spoken
from agentrl.types import AgentReply, Observation, Status


class Parsed(NamedTuple):
    """What an answer means: the action that the environment gets, and how well the answer was formed.

    `valid` says whether the answer has the right format; some credit methods, such as GiGPO, can penalise answers that
    are not valid. `status` is OK or PARSE_ERROR. `calls` counts the tool calls in the answer. If the answer has an
    action but not the right format, `missing` names the missing parts of the format, such as "<think> and </think>".
    `thought` says that the answer is a thought without an action: the thought is not closed, or nothing follows it.
    """

    action: str
    valid: bool
    status: Status
    calls: int = 0
    missing: str = ""
    thought: bool = False


def missing_thought_tags(text: str) -> str:
    """`Parsed.missing` of a format that asks for a thought: the tags <think> and </think> that the text lacks."""
    return " and ".join(tag for tag in ("<think>", "</think>") if tag not in text)


class PastTurn(NamedTuple):
    """A turn already played: its observation, its action, and the replies of the agents that it called."""

    observation: Observation
    action: str
    replies: tuple[AgentReply, ...] = ()


class ShownTools(NamedTuple):
    """How a prompt presents tools: the system message, and the schemas of tools that the chat template describes.

    `tools` is empty if the chat template describes no tools.
    """

    system: str
    tools: tuple[Mapping[str, Any], ...] = ()


class Prompt(Protocol):
    """The messages of one environment. The context (`algorithms/context`) decides which of these messages are used.

    A prompt may have these further attributes:

    - `continues = True`: later observations are written into the running assistant message, not into a user message of
      their own. Answers that are written and not sampled (demonstrations, listed answers) then have no end token.
    - `stop = ("</search>",)`: the strings that end an answer; a recipe that names such strings replaces them.
    - `native = True`: the schemas of the tools go to the server as data.
    - `reads_thoughts = True`: `parse` itself says what is wrong with an answer whose thought is not closed. The other
      prompts are then asked what an empty answer means.
    - `rewords = True`: `turn` writes the results of tools in a form of its own. A policy with a tokenizer reads this
      text, and not the messages of the observation.

    A prompt for tools has two more methods: `show(observation, chat) -> Shown`, where `chat` is the tokenizer's
    template or None for policies that read messages, and `as_native() -> Prompt`, the same prompt with
    `native = True`.
    """

    system: str

    def first(self, observation: Observation) -> str:
        """The user message of turn 0."""
        ...

    def turn(self, observation: Observation) -> str:
        """A later user message, if the context keeps the whole chat."""
        ...

    def window(self, first: Observation, past: Sequence[PastTurn], done: int, observation: Observation) -> str:
        """The single user message, if the context rebuilds the chat at each step.

        Args:
            first: the observation of turn 0 (it holds the task).
            past: the last k turns, oldest first.
            done: number of turns played so far, >= len(past).
            observation: the current observation.
        """
        ...

    def answer(self, action: str) -> str:
        """The assistant text that means this action (for experts and for listed actions)."""
        ...

    def parse(self, text: str, observation: Observation) -> Parsed:
        """What an assistant text means; never raises."""
        ...


def continues(prompt: Prompt) -> bool:
    """Are later observations written into the running assistant message?"""
    return bool(getattr(prompt, "continues", False))


def native(prompt: Prompt) -> bool:
    """Do the schemas of the tools go to the server as data, so that the messages need not describe them?"""
    return bool(getattr(prompt, "native", False))


def rewords(prompt: Prompt) -> bool:
    """Does a policy with a tokenizer read the text of `turn`, and not the observation's messages (results of tools)?"""
    return bool(getattr(prompt, "rewords", False))


def stops(prompt: Prompt) -> tuple[str, ...]:
    """The strings that end an answer to this prompt."""
    return tuple(getattr(prompt, "stop", ()))


def read_answer(prompt: Prompt, text: str, observation: Observation) -> Parsed:
    """What an answer means, for rollouts. An answer that ends inside a thought has no action and is not valid.

    Args:
        prompt: the environment's prompt.
        text: the answer, with the opening tag of a thought that the prompt has begun (`Chat.with_opened_thought`).
        observation: the observation that the answer follows.
    """
    closed = answer_start(text) is not None
    if closed or getattr(prompt, "reads_thoughts", False):
        parsed = prompt.parse(text, observation)
        fails = not closed or (parsed.status == Status.PARSE_ERROR and bool(text.strip()) and not spoken(text))
        return parsed._replace(thought=True) if fails else parsed
    # `missing` is for answers whose action is carried out, and reports say so.
    parsed = prompt.parse("", observation)
    return parsed._replace(valid=False, status=Status.PARSE_ERROR, calls=0, missing="", thought=True)


class Plain:
    """A prompt with the observation as the user message, and with the stripped answer as the action.

    If the observation lists actions, the answer is one of them, and labels and tags around it are left out (`spoken`).
    Other environments read the answer themselves, and may ask for such labels and tags, so that only thoughts are left
    out.
    """

    system = ""

    def first(self, observation: Observation) -> str:
        """The task, if the observation states it apart, then `turn`."""
        return "\n".join(part for part in (observation.task, self.turn(observation)) if part)

    def turn(self, observation: Observation) -> str:
        """The observation and, if they are listed, the admissible actions."""
        listed = f"\nActions: {', '.join(observation.actions)}" if observation.actions else ""
        return observation.text + listed

    def window(self, first: Observation, past: Sequence[PastTurn], done: int, observation: Observation) -> str:
        """The task, the last turns as numbered lines, and `turn` of the current observation."""
        start = done - len(past) + 1
        lines = [f"Step {start + i}: {p.observation.text} -> {p.action}" for i, p in enumerate(past)]
        return "\n".join([part for part in (first.task,) if part] + lines + [self.turn(observation)])

    def answer(self, action: str) -> str:
        """The action itself."""
        return action

    def parse(self, text: str, observation: Observation) -> Parsed:
        """The words of the answer as the action, see the class; an answer without words is invalid."""
        words = without_thoughts(text).strip()
        action = spoken(text) if observation.actions and words not in observation.actions else words
        return Parsed(action, bool(action), Status.OK if action else Status.PARSE_ERROR)


class Bare(Plain):
    """As `Plain`, but `first` and `turn` are the text of the observation alone, without task and listed actions."""

    def first(self, observation: Observation) -> str:
        """The text of the observation."""
        return observation.text

    def turn(self, observation: Observation) -> str:
        """The text of the observation."""
        return observation.text
