"""The protocol of an environment, and the protocols of its optional abilities.

`agentrl.env.EnvironmentFile` describes the hooks of an environment's file (`Config`, `make`, `tasks` and others).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from agentrl.types import AgentReply, Observation, StepResult, Task


@runtime_checkable
class Env(Protocol):
    """Plays one episode at a time. Calls are synchronous, and actions and observations are texts.

    The core handles tokens, limits, time-outs and retries.
    """

    def reset(self, task: Task) -> Observation:
        """Start the task from its first state; equal tasks give equal observations."""
        ...

    def step(self, action: str) -> StepResult:
        """Carry out one action. If the action makes no sense, the observation says so; this method does not raise."""
        ...

    def close(self) -> None:
        """Release the resources of the instance."""
        ...


@runtime_checkable
class Snapshots(Protocol):
    """An environment whose episodes can be branched without replaying their actions."""

    def snapshot(self) -> Any:
        """The episode's state as a picklable value that later steps do not change."""
        ...

    def restore(self, snapshot: Any) -> Observation | None:
        """Go back to the state of a snapshot and return its observation.

        Another instance may have taken the snapshot. Before this call, the core resets this instance to the task of the
        snapshot, if its latest task was another one. The core compares the returned observation with the observation
        at the time of the snapshot. If `restore` returns None, the core branches by replaying actions.
        """
        ...


class Verdict(NamedTuple):
    """The verdict of an environment on an episode that a limit of the core ended.

    `reward` is added to the reward of the last step; the entries of `info` are added to the info of that step.
    """

    reward: float
    info: Mapping[str, Any]


@runtime_checkable
class Judges(Protocol):
    """An environment that scores the state in which a limit of the core ends the episode."""

    def cut(self) -> Verdict:
        """Return the verdict on the current state; the episode is over and gets no further action."""
        ...


@runtime_checkable
class Delegates(Protocol):
    """An environment that gives errands to other agents; see `agentrl.types.AgentCall`."""

    def returned(self, replies: tuple[AgentReply, ...]) -> StepResult:
        """Continue with the replies of the called agents; the observation should say in words if a call failed."""
        ...


class Move(NamedTuple):
    """An expert's action and its weight in the cloning loss (0 for a mistake that the expert makes on purpose)."""

    action: str
    weight: float = 1.0


class Expert(Protocol):
    """Plays the environment instance that it was made for: first `reset`, then one `act` per observation."""

    def reset(self, task: Task) -> None:
        """Forget the last episode; an episode of this task begins."""
        ...

    def act(self, observation: Observation) -> Move:
        """The next move, in answer to the latest observation."""
        ...


@runtime_checkable
class Writes(Protocol):
    """An expert that can also write the memory of the agent, for contexts in which the agent keeps a memory."""

    def write(self, memory: str, text: str) -> Move:
        """The new memory, as `Move.action`: what to remember of `memory` (the old one) and of `text`.

        The context drops `text` from the prompt, so later turns see only what the new memory says about it.
        """
        ...
