"""Who plays an episode, and from where."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentrl.config import Entry
from agentrl.env import Limits, Pool, Prompt
from agentrl.graph import PLAYED
from agentrl.rollout.actor import Actor
from agentrl.rollout.branch import Point
from agentrl.rollout.context import ContextPolicy
from agentrl.rollout.records import StepRecord
from agentrl.types import Task


@dataclass(frozen=True, kw_only=True)
class Player:
    """Everything an episode needs besides its task.

    `admissible` restricts answers to the observation's actions where it lists any; `seed` and `stage` go into
    every noise key, so that training, cloning and evaluation draw different noise. `agents` are those that this one,
    called `agent`, may call.
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Start:
    """A chain to play, from its task's beginning or on from a point of another chain.

    Attributes:
        task, group, copy, tree, kind: see EpisodeRecord. group and copy go into the noise keys.
        session: of the engine; no two alike in a batch.
        point, steps, points: where it leaves another chain, and that chain's steps and points before.
        turns: most steps of its own; None for as many as the limits allow.
        remember: keep a point before each turn (and at a stop that `turns` made).
        caller: the step that called this agent, for a chain that is an errand.
        key: more integers of the noise keys, which tell an errand from its caller and its siblings.
        depth: callers above it.
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


class TooManyFaults(RuntimeError):
    """More rollouts were lost to environment faults than `limits.fault_share` allows."""
