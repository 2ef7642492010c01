"""The values that cross module borders. The step graph has its own module, `agentrl.graph.step_graph`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np


class Status(IntEnum):
    """What happened in a step (`OK` to `TOOL_ERROR`), or how an episode ended (`DONE` and above).

    What the agent caused is scored. `ENV_ERROR` (crash, hang, lost service) is nobody's score: it is retried,
    else left out of every statistic and reported as a share.
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
    ENV_ERROR = 20


@dataclass(frozen=True, kw_only=True)
class Task:
    """What to reset an environment to. Copies of one task form a group that starts from one state.

    Attributes:
        key: stable name, listed in results; unique within the environment's tasks.
        env: catalogue name of the environment.
        seed: seed of everything random in the environment; part of the task, so copies start alike.
        params: what the environment needs to build the task (JSON values).
    """

    key: str
    env: str
    seed: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the agent sees.

    Attributes:
        text: the environment's words.
        state_key: the environment's word on "the same state"; empty means the text itself.
        actions: the admissible actions; empty where the environment lists none.
        tools: JSON schemas of the tools on offer.
        task: the task's instruction where the environment states it apart from the observation.
        messages: the same words as `text` as chat messages (one a tool's answer); empty: `text` is a user message.
    """

    text: str
    state_key: str = ""
    actions: tuple[str, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    task: str = ""
    messages: "tuple[Message, ...]" = ()


class StepResult(NamedTuple):
    """One environment step, unpacking as Gymnasium's five.

    `info["success"]` (bool) is the environment's word on success so far; `info["signals"]` (names and finite numbers)
    are what rewards can be composed of (`agentrl.credit.rewards`); other entries are free. If both flags are set,
    terminated wins.
    """

    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]


class Errand(NamedTuple):
    """What an environment asks of another agent: `agent` is its name in the recipe, `task` what it is to play.

    A step whose `info["errands"]` holds some is not over: each is played by its agent, and the environment is stepped
    once more with the tuple of their `Reply`s, in order. That step's result is the turn's.
    """

    agent: str
    task: Task


class Reply(NamedTuple):
    """What came of an errand.

    `status` is how the called agent's episode ended; `text` what it said (its last `info["answer"]`, else its last
    action), empty if it failed (`ENV_ERROR`), had no room to answer the errand (`TOKEN_LIMIT`) or was not called at all
    (`DEPTH_LIMIT`). `reward` and `info` are the sum of its rewards and its last `info`.
    """

    text: str
    status: Status
    reward: float = 0.0
    info: Mapping[str, Any] = {}


Action = str | tuple[Reply, ...]  # what an environment is stepped with


Finish = Literal["stop", "length", "abort"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Generation:
    """One answer of a policy. Sampled ids are the only truth: text that was sampled is never encoded again.

    Attributes:
        text: the decoded answer without its end token.
        token_ids: [T] int64, end token included if it was sampled; empty for policies that have no tokenizer.
        logprobs: [T] float64 nats under the sampling distribution (temperature and allowed set applied).
        allowed: for each token the ids it was restricted to, ascending; an empty array means unrestricted.
            None if no token was restricted.
        finish: "stop" (end token or stop string), "length" (token limit), "abort" (the engine gave up).
        policy_version: (oldest, newest) weights that took part.
        weight: share in the loss; 0 for a demonstrator's deliberate mistakes.
        usage: counts of a remote policy, such as prompt_tokens, completion_tokens and cost.
        entropy: [T] float64, of the ten most probable tokens, -sum p log p / log V; None where it was not asked for.
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


class Message(NamedTuple):
    """One chat message; role is system, user, assistant or tool, `name` the tool that speaks."""

    role: str
    content: str
    name: str = ""


class Rewrite(NamedTuple):
    """What a model is to write anew: its memory so far, and the text that is to go into it."""

    memory: str
    text: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """One turn's question to a policy.

    Attributes:
        session: the rollout it belongs to; an engine may keep its KV cache under this key until `release`.
        token_ids: [T] int64, the whole prompt; empty for policies without a tokenizer.
        messages: the same prompt as chat messages.
        observation: what the environment just said (for policies that are not language models).
        choices: token sequences the answer must be one of, end token included; None for free text.
        choice_texts: the text of each choice.
        max_tokens: most tokens to sample.
        noise_key: integers that name this turn, (seed, iteration, task, copy, turn); sampling noise is a
            function of the key and the token's index alone.
        rewrites: set if the answer is not for the environment but for the model's own memory.
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


class EnvFault(Exception):
    """The environment failed; the message says how. Not the agent's doing."""


@runtime_checkable
class Stateful(Protocol):
    """What keeps something from one iteration to the next; a run stores it in its checkpoints.

    A state is made of dicts, lists, numbers, texts, NumPy arrays and torch tensors.
    """

    def state_dict(self) -> Mapping[str, Any]:
        """Everything needed to go on from here."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        ...
