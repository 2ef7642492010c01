"""Everything with which episodes are played (`Player`), and the start of a chain (`Start`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agentrl.config import Entry
from agentrl.env import Handle, Limits, Pool, Prompt
from agentrl.graph import PLAYED
from agentrl.rollout.actor import Actor
from agentrl.rollout.branch import Opening, Point
from agentrl.rollout.context import ContextPolicy
from agentrl.rollout.records import EpisodeRecord, StepRecord
from agentrl.types import Task


class EpisodeTry(Protocol):
    """One try to play one chain."""

    async def run(self) -> None:
        """Play the chain, and fill its record.

        Raises:
            EnvFault: the environment or a service failed.
        """


class EpisodeProgram(Protocol):
    """What plays whole episodes with prompts of its own, in place of a policy that answers turn by turn.

    Attributes:
        lockstep: requests of an episode that came together are answered together, so that the same seed gives the same
            run.
    """

    lockstep: bool

    def episode(
        self, player: "Player", record: EpisodeRecord, handle: Handle, start: "Start", key: tuple[int, ...]
    ) -> EpisodeTry:
        """A try to play the chain `start` in the environment `handle`; `key` is the noise key."""

    def close(self) -> None:
        """The run ends: free what the episodes shared."""


@dataclass(frozen=True, kw_only=True)
class Player:
    """Everything an episode needs besides its task.

    Attributes:
        actor: answers the turns.
        pool: the environments.
        prompt: writes the environment's texts for prompts, and parses answers.
        context: makes the prompts from the history.
        limits: limits of the episode.
        admissible: restrict answers to the actions of the observation, if the observation lists any.
        seed, stage: part of every noise key, so that training, cloning and evaluation draw different noise.
        agent: name of this agent.
        agents: players of the agents that this agent may call, by name.
        timed: store how long each answer and each step of the environment takes. These times differ from run to run.
        program: plays the episodes with its own prompts; None lets the actor answer turn by turn.
    """

    actor: Actor
    pool: Pool
    prompt: Prompt
    context: Entry[ContextPolicy]
    limits: Limits
    admissible: bool = False
    seed: int = 0
    stage: int = 0
    agent: str = "agent"
    agents: Mapping[str, "Player"] = field(default_factory=dict)
    timed: bool = False
    program: EpisodeProgram | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Start:
    """A chain to play, from its task's beginning or from a point of another chain.

    Attributes:
        task, group, copy, tree, kind: see EpisodeRecord; `group` and `copy` are part of the noise keys.
        session: session of the engine, a different one for each chain of a batch.
        point: where the chain leaves another chain; None for the task's beginning.
        steps, points: the other chain's steps before `point`, and the other chain's points up to `point`.
        turns: largest number of new steps; None if only `Player.limits` limits them.
        remember: store a point before each turn, and one more if `turns` stops the chain.
        caller: if the chain is an errand, the step that called this agent; else None.
        key: further integers of the noise keys. They differ between an errand, its caller and the caller's other
            errands.
        depth: number of callers above the chain.
        temperature, tokens, words, opening: see `agentrl.rollout.sampler.Draw`; a called agent gets the temperature of
            its caller, and the defaults of `tokens`, `words` and `opening`.
    """

    task: Task
    group: int
    copy: int
    session: int
    tree: int | None = None
    kind: int = PLAYED
    point: Point | None = None
    steps: Sequence[StepRecord] = ()
    points: Mapping[int, Point] = field(default_factory=dict)
    turns: int | None = None
    remember: bool = False
    caller: StepRecord | None = None
    key: tuple[int, ...] = ()
    depth: int = 0
    temperature: float | None = None
    tokens: int | None = None
    words: str = ""
    opening: Opening | None = None


class TooManyFaults(RuntimeError):
    """The share of chains that a fault of the environment or of a score ended is above `limits.fault_share`."""
