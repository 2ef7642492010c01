"""The values that modules exchange, except the step graph (`agentrl.graph.StepGraph`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np


class Status(IntEnum):
    """What happened in a step (`OK` to `TOOL_ERROR`), or how an episode ended (`DONE` and above).

    Every rollout has a score, except a rollout with an ending in `LEFT_OUT`. `ENV_ERROR`: the environment or a service
    failed (crash, hang, lost connection), or a score failed. A rollout that the environment or a service ended is
    played again. If the last attempt fails too, or if a score failed, the rollout is left out of every statistic and
    counted in the reported share of lost rollouts. `OVERLONG_PROMPT`: the first prompt leaves no token for an answer,
    so there is no step that could be scored. The rollout is left out too, and counted in a share of its own.
    """

    OK = 0
    PARSE_ERROR = 1
    TOOL_ERROR = 2
    DONE = 10
    TURN_LIMIT = 11
    TOKEN_LIMIT = 12
    TURN_TOKEN_LIMIT = 13
    CALL_LIMIT = 14
    DEPTH_LIMIT = 15
    TIME_LIMIT = 16
    CONTEXT_LIMIT = 17  # the prompt does not fit the context of the endpoint's model
    REFUSED = 18  # the endpoint's content filter refused the prompt
    ENV_ERROR = 20
    OVERLONG_PROMPT = 21  # the first prompt leaves no token for an answer: the rollout has no step


LEFT_OUT = frozenset({Status.ENV_ERROR, Status.OVERLONG_PROMPT})  # endings of rollouts that no statistic counts
UNSCORED = frozenset(status.name.lower() for status in LEFT_OUT)  # their names in reports


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task, to which an environment is reset. Copies of one task start from the same state and form a group.

    Attributes:
        key: stable name, printed in results; unique within the environment's tasks.
        env: catalogue name of the environment.
        seed: seed of everything random in the environment; part of the task, so copies start alike.
        params: JSON values from which the environment builds the task.
    """

    key: str
    env: str
    seed: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What an environment shows to an agent.

    Attributes:
        text: the text of the environment.
        state_key: observations with equal keys show the same state; empty: the text is the key.
        actions: the admissible actions; empty if the environment lists none.
        tools: JSON schemas of the tools that the agent may call.
        task: the task's instruction, if the environment states the instruction apart from the observation.
        messages: the content of `text` as chat messages (one message per tool result); empty: `text` is one user
            message.
    """

    text: str
    state_key: str = ""
    actions: tuple[str, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    task: str = ""
    messages: "tuple[Message, ...]" = ()


class StepResult(NamedTuple):
    """The result of one environment step, in the order of the five values that Gymnasium's `step` returns.

    `info["success"]` (bool) says whether the task is solved so far; `info["signals"]` maps names to finite numbers from
    which a recipe can compose rewards (`agentrl.credit.RewardTransform`); other entries are free. If `terminated` and
    `truncated` are both true, the episode counts as terminated.
    """

    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]


class AgentCall(NamedTuple):
    """A task that an environment gives to another agent; `agent` is that agent's name in the recipe.

    If the `info["errands"]` of a step holds errands, the turn is not over: each errand is played by its agent, then the
    environment's method `returned` (`agentrl.env.Delegates`) gets the tuple of their `AgentReply`s, in the order of the
    errands. The result of the turn is what `returned` returns.
    """

    agent: str
    task: Task


class AgentReply(NamedTuple):
    """The outcome of an errand.

    `status` is how the called agent's episode ended. `text` is that agent's answer: the `info["answer"]` of its last
    step if this is a text, else its last action. The text is empty if the episode failed (`ENV_ERROR`), if the episode
    ended before its first step (`TOKEN_LIMIT`: the first prompt did not fit), or if the agent was not called at all
    (`DEPTH_LIMIT`). `reward` is the sum of the episode's rewards, and `info` is the info of its last step; without a
    step or after a failure they are 0 and empty.
    """

    text: str
    status: Status
    reward: float = 0.0
    info: Mapping[str, Any] = {}


Action = str | tuple[AgentReply, ...]  # what `agentrl.env.Handle.step` takes: an agent's action, or replies to errands


Finish = Literal["stop", "length", "abort", "malformed", "context", "refused"]
NO_ANSWER: Mapping[str, Status] = MappingProxyType(
    {"context": Status.CONTEXT_LIMIT, "refused": Status.REFUSED}
)  # `finish` of a generation that holds no answer -> how its episode ends


@dataclass(frozen=True, kw_only=True, eq=False)
class Generation:
    """One answer. The text of a sampled answer is decoded from the sampled token ids, and is never encoded again.

    The answers of experts are texts; their token ids, if there are any, are encoded from the text.

    Attributes:
        text: the decoded answer without its end token.
        token_ids: [T] int64, with the end token if it was sampled; empty for policies that have no tokenizer.
        logprobs: [T] float64 nats under the sampling distribution (temperature and allowed set applied).
        allowed: per token the ascending ids to which the token was restricted; an empty array means unrestricted. None
            if no token was restricted.
        finish: "stop" (end token or stop string), "length" (token limit), "abort" (the engine or a content filter
            broke the answer off), "malformed" (a server could not read the model's tool call). Two mean no answer:
            "context" (the prompt does not fit the model's context), "refused" (a content filter refused it).
        policy_version: (oldest, newest) version of the weights that sampled the answer.
        weight: factor of the answer in the loss; 0 if it must not be imitated, such as an expert's deliberate mistake.
        usage: counts of a remote policy, such as prompt_tokens, completion_tokens and cost.
        entropy: [T] float64, -sum p log p / log V, where the sum is over the ten most probable tokens and V is the size
            of the vocabulary; None if it was not requested.
        entropy_nats: [T] float64, entropy in nats of the whole distribution at the sampling temperature under the
            allowed set (top_k and top_p are ignored); None if it was not requested.
        thought: reasoning that a remote policy returned apart from the answer; it is not part of the answer.
        refusal: the remote policy's or its server's own text about why it refused; empty if it did not refuse.
        message: the answer as a chat message, if it has tool calls as data; `text` then holds these calls, too. Else
            None.
        cut_by: if a remote policy cut the answer off before the request's `max_tokens`, a sentence that names the limit
            and gives advice; empty if the answer was not cut off, or if the limit is not known.
    """

    text: str
    token_ids: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    logprobs: np.ndarray = field(default_factory=lambda: np.zeros(0))
    allowed: tuple[np.ndarray, ...] | None = None
    finish: Finish = "stop"
    policy_version: tuple[int, int] = (0, 0)
    weight: float = 1.0
    usage: Mapping[str, float] = field(default_factory=dict)
    entropy: np.ndarray | None = None
    entropy_nats: np.ndarray | None = None
    thought: str = ""
    refusal: str = ""
    message: "Message | None" = None
    cut_by: str = ""


class ToolCall(NamedTuple):
    """A tool call that an OpenAI-compatible server returned as data; `arguments` is JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


class Message(NamedTuple):
    """One chat message.

    `role` is system, user, assistant or tool; `name` is the name of the tool, else empty; `calls` are the tool calls of
    an assistant whose server returns tool calls as data. The tool messages that follow hold the results of `calls`, in
    the order of the calls.
    """

    role: str
    content: str
    name: str = ""
    calls: tuple[ToolCall, ...] = ()


class Rewrite(NamedTuple):
    """Asks a model to rewrite its memory: the memory so far, and the text that the new memory has to include."""

    memory: str
    text: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """The prompt of one turn, which a policy answers.

    Attributes:
        session: number of the chain that the turn belongs to; an engine may keep the chain's KV cache under this number
            until `release`.
        token_ids: [T] int64, the whole prompt; empty for policies without a tokenizer.
        messages: the same prompt as chat messages.
        observation: the current observation (for policies that are not language models).
        choices: token id sequences, one of which must be the answer; None for free text. They include the end token if
            answers end the assistant turn.
        choice_texts: the text of each choice.
        max_tokens: largest number of tokens to sample.
        noise_key: integers that name this answer, such as (seed, stage, iteration, group, copy, attempt, turn);
            sampling noise is a function of the key and the token's index alone.
        rewrites: set if the answer becomes the model's memory and is not an action for the environment; else None.
        tools: JSON schemas of the tools that the server gets as data; empty if the messages describe the tools.
        temperature: sampling temperature of this answer; None takes the engine's temperature.
    """

    session: int
    token_ids: np.ndarray
    messages: Sequence[Message]
    observation: Observation
    choices: Sequence[np.ndarray] | None = None
    choice_texts: Sequence[str] = ()
    max_tokens: int = 512
    noise_key: tuple[int, ...] = (0,)
    rewrites: Rewrite | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    temperature: float | None = None


class EnvFault(Exception):
    """The environment failed for a reason that the agent did not cause; the message says why."""


@runtime_checkable
class Stateful(Protocol):
    """An object that keeps a state between iterations; a run stores that state in its checkpoints.

    A state is made of dicts, lists, numbers, texts, NumPy arrays and torch tensors.
    """

    def state_dict(self) -> Mapping[str, Any]:
        """The state, complete enough to continue from it."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that `state_dict` returned."""
        ...
