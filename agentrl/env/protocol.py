"""What an environment is: one episode at a time, in text, synchronous; and what it may be able to do besides.

What the file of an environment offers (`Config`, `make`, `tasks` and the optional hooks) stands in `agentrl.env.hooks`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from agentrl.types import Observation, Reply, StepResult, Task


@runtime_checkable
class Env(Protocol):
    """One episode at a time, synchronous, in text. Tokens, limits, time-outs and retries are the core's."""

    def reset(self, task: Task) -> Observation:
        """Start the task from its first state; equal tasks give equal observations."""
        ...

    def step(self, action: str) -> StepResult:
        """Carry out one action. One it does not understand is answered in words, not with an exception."""
        ...

    def close(self) -> None:
        """Release what the instance holds."""
        ...


@runtime_checkable
class Snapshots(Protocol):
    """An environment that can be branched without replaying its actions."""

    def snapshot(self) -> Any:
        """The episode's state as a picklable value that later steps do not change."""
        ...

    def restore(self, snapshot: Any) -> Observation | None:
        """Go back to that state, also from another instance on which the task was reset; the observation there.

        The core compares it with the one at `snapshot`; where None is returned it branches by replaying actions.
        """
        ...


class Verdict(NamedTuple):
    """What an environment has to say about an episode that a limit of the core ended.

    `reward` is added to that of the last step, `info` to its info.
    """

    reward: float
    info: Mapping[str, Any]


@runtime_checkable
class Judges(Protocol):
    """An environment that scores what was reached when a limit of the core ends the episode."""

    def cut(self) -> Verdict:
        """The episode is over without a last action."""
        ...


@runtime_checkable
class Delegates(Protocol):
    """An environment whose agent may call other agents: see `agentrl.types.Errand`."""

    def returned(self, replies: tuple[Reply, ...]) -> StepResult:
        """Go on with what the called agents brought back; a failed one is to be told in words."""
        ...


class Move(NamedTuple):
    """A demonstrator's action and its share in the cloning loss (0 for an injected mistake)."""

    action: str
    weight: float = 1.0


class Expert(Protocol):
    """Plays the environment instance it was made for, one `act` an observation, `reset` first."""

    def reset(self, task: Task) -> None:
        """Forget the last episode."""
        ...

    def act(self, observation: Observation) -> Move:
        """The action to take now."""
        ...


@runtime_checkable
class Writes(Protocol):
    """An expert that can also show how to keep a memory, for context policies that have one."""

    def write(self, memory: str, text: str) -> Move:
        """What to remember of a memory and a text to be forgotten; as `Move.action`."""
        ...
