"""The protocol of guides: a guide helps the policy to learn tasks, above all tasks whose copies all fail.

A file in `algorithms/guide/` offers a frozen `Config` and

    def make(config: Config, seed: int) -> Guide

A guide gets the draws of the sampler. It may return them with an `Opening` (a start state) or with words, and so change
how chains start. The column `guided` of the graph marks such chains. They are trained, but success rates and samplers
leave them out. A guide that helps in another way returns the draws as they are. `GuideFile` lists the other hooks that
a file may offer.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from agentrl.catalogue import CatalogueFile, hook
from agentrl.graph import StepGraph
from agentrl.rollout.records import EpisodeRecord
from agentrl.rollout.replay_buffer import Joins
from agentrl.rollout.sampler import Draw
from agentrl.types import Task

Demonstrate = Callable[[Sequence[Task]], Awaitable[list[EpisodeRecord]]]


class Guide(Protocol):
    """Helps the policy.

    The draws that a guide returns depend only on the draws that it gets, on its seed, and on the records that it has
    received.
    """

    def begin(self, draws: Sequence[Draw]) -> list[Draw]:
        """The draws of a batch with the guide's changes."""
        ...

    def observe(self, records: Sequence[EpisodeRecord]) -> None:
        """Learn from all chains of a batch: the chains that the guide helped and the other chains."""
        ...

    def state_dict(self) -> Mapping[str, Any]:
        """State for a checkpoint."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        ...


@runtime_checkable
class DemonstrationGuide(Protocol):
    """A guide that asks the agent's expert for episodes."""

    def wanted(self, draws: Sequence[Draw]) -> list[Task]:
        """The tasks that the expert is to play before the batch begins, each at most once."""
        ...

    def shown(self, records: Sequence[EpisodeRecord]) -> None:
        """Receive the expert's episodes, in the order of the tasks."""
        ...


@runtime_checkable
class LessonGuide(Protocol):
    """A guide that lets the policy imitate demonstrations between two updates of reinforcement learning."""

    def lesson(self) -> StepGraph | None:
        """The demonstrations to imitate now, as a graph with tokens; None if it is not time for a lesson."""
        ...


class Teaching(NamedTuple):
    """The model that computes the log-prob of each token that the policy sampled.

    Attributes:
        source: `folder`, `endpoint` or `own` (the policy is its own teacher).
        path, dtype, device: options of a model in a folder.
        url, model, api_key, concurrency, timeout_s: options of an endpoint.
    """

    source: str
    path: str
    dtype: str
    device: str
    url: str
    model: str
    api_key: str
    concurrency: int
    timeout_s: float


@dataclass(frozen=True, kw_only=True)
class GuideFile(CatalogueFile):
    """The file of a guide.

    Attributes:
        make: see the module's docstring.
        expert: (config) -> does the guide ask for episodes of the agent's expert?
        words: texts whose words a new tokenizer must know.
        plain: (config) -> are further chains that were played with words trained with the prompt without these words? A
            guide has this hook if it gives groups such chains (`agentrl.rollout.hints.Hinting`).
        teaches: (config) -> the model that computes the column `teacher_logprob`.
        joins: (config) -> do demonstrations count in statistics, and are they trained? A guide has this hook if it puts
            demonstrations into groups (`agentrl.rollout.demonstrations.Demonstrating`).
        paper: one line for listings.
    """

    KIND: ClassVar[str] = "guide"

    make: Callable[[Any, int], Guide] = hook(help="(config, seed) -> Guide")
    expert: Callable[[Any], bool] | None = hook("", "(config) -> does it ask for episodes of the agent's expert?", None)
    words: Callable[[Any], Sequence[str]] | None = hook("", "(config) -> texts whose words a tokenizer must know", None)
    plain: Callable[[Any], bool] | None = hook("", "(config) -> are chains trained without their words?", None)
    teaches: Callable[[Any], Teaching] | None = hook("", "(config) -> Teaching, the source of teacher_logprob", None)
    joins: Callable[[Any], Joins] | None = hook(
        "", "(config) -> Joins, for a guide that puts demonstrations into groups", None
    )
    paper: str = hook("PAPER", "one line for listings", "")


async def guided(guide: Guide, draws: Sequence[Draw], demonstrate: Demonstrate | None) -> list[Draw]:
    """The draws after the guide's changes. Before these changes the expert plays the tasks that the guide asks for."""
    if isinstance(guide, DemonstrationGuide) and (tasks := guide.wanted(draws)):
        assert demonstrate is not None, "the settings refuse a guide that asks for an expert, if there is no expert"
        guide.shown(await demonstrate(tasks))
    return guide.begin(draws)
