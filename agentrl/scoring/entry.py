"""The interface of a score: a file in `algorithms/score/` that reads played chains and returns named signals.

The file offers a frozen pydantic `Config`, preferably a subclass of `ScoreOptions`, and

    def make(config: Config) -> Scorer
    def signals(config: Config) -> Sequence[str]    # the names of the signals that the scorer returns

With `SCOPE = "group"` a scorer gets all chains of a group in one call; by default it gets one chain. A scorer that asks
a model or another paid service asks through the `JudgeClient`, an argument of the call. The client caches, counts and
limits the paid answers. If a scorer has `state_dict` and `load_state_dict`, its state is part of the run's checkpoints.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import BaseModel

from agentrl.catalogue import CatalogueFile, hook
from agentrl.config import Entry, resolve
from agentrl.scoring.chain_steps import Chain
from agentrl.types import EnvFault, Generation, Message

Signals = Mapping[str, float | Sequence[float]]
"""The signals of one chain, by name: one number for the last step, or one number per step (NaN: no signal there)."""


class ScoreFault(EnvFault):
    """A chain cannot be scored, for a reason outside the agent. The chain ends as `env_error`, never with score 0."""


class ScoreOptions(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Options of every score that is part of agentrl.

    Attributes:
        agent: the agent whose chains are scored, one of [agents]; empty: the agent that gets the tasks.
    """

    agent: str = ""


@dataclass(frozen=True, kw_only=True)
class Paid:
    """An answer that the run has paid for.

    Attributes:
        value: the answer, a JSON value.
        tokens: number of tokens of the prompt and the answer together.
        price: price in USD.
    """

    value: Any
    tokens: int = 0
    price: float = 0.0


Ask = Callable[[], Awaitable[Paid]]
"""Asks a question and pays for the answer."""


class PolicyClient(Protocol):
    """A policy of the run, which a score may ask.

    Attributes:
        key: everything that the policy's answers depend on, without the messages, as JSON values.
    """

    key: Mapping[str, Any]

    async def reply(self, messages: Sequence[Message], max_tokens: int, noise_key: tuple[int, ...]) -> Generation:
        """One answer of at most `max_tokens` tokens to the messages; `noise_key` seeds its sampling."""
        ...


class JudgeClient(Protocol):
    """What a scorer may use: paid answers and policies of the run.

    Attributes:
        entry: name of the score and its options, as JSON values. A scorer whose answers depend on `entry` must put it
            into the `values` of each question, because the key of a question is the hash of `values` alone.
    """

    @property
    def entry(self) -> Mapping[str, Any]: ...

    async def answer(self, values: Mapping[str, Any], ask: Ask) -> Any:
        """The answer to a question, from the cache or paid for.

        Args:
            values: everything that the answer depends on, as JSON values.
            ask: asks the question and pays. `ask` is not called if the answer is known or already under way.
        """
        ...

    def count(self, name: str, value: float) -> None:
        """Add a value to the mean that metrics report as `score_NAME`."""
        ...

    def policy_client(self, agent: str) -> PolicyClient:
        """The policy of an agent of the recipe.

        Raises:
            ValueError: the agent has no policy here, because the models of the run are not loaded.
        """
        ...


class Scorer(Protocol):
    """Scores chains. Many calls of `score` run at once."""

    async def score(self, chains: Sequence[Chain], client: JudgeClient) -> Sequence[Signals | EnvFault]:
        """For each chain, in order: its signals, or a fault if this chain cannot be scored.

        `chains` holds one chain, or with `SCOPE = "group"` all chains of a group that the scored agent played.

        Raises:
            ScoreFault: none of these chains can be scored. Every exception that is no ValueError has the same effect.
            ValueError: there is a mistake in the recipe or in the score's file; the run stops.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ScoreFile(CatalogueFile):
    """The file of a score.

    Attributes:
        make, signals: see the module's docstring.
        scope: the chains that a scorer gets in one call: one chain, or those of one group.
        paper: the source of the score, one line for listings.
    """

    KIND: ClassVar[str] = "score"

    make: Callable[[Any], Scorer] = hook(help="(config) -> Scorer")
    signals: Callable[[Any], Sequence[str]] = hook(help="(config) -> names of the signals that the scorer returns")
    scope: Literal["chain", "group"] = hook("SCOPE", "what a scorer sees at once: chain or group", "chain")
    paper: str = hook("PAPER", "the source of the score, one line for listings", "")


@runtime_checkable
class Closable(Protocol):
    """A scorer that has open connections."""

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass
class MetricMeans:
    """Collects values by name during an iteration; the metrics are their means.

    An example is the share of a judge's verdicts that depended on the order of the answers.
    """

    total: dict[str, float] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        """Add one value of a name; the metric is the mean of the values."""
        self.total[name] = self.total.get(name, 0.0) + value
        self.times[name] = self.times.get(name, 0) + 1

    def means(self) -> dict[str, float]:
        """The mean of each name."""
        return {name: self.total[name] / self.times[name] for name in sorted(self.total)}


def resolve_scores(section: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[Entry[ScoreFile], ...]:
    """The catalogue entries of one, several or no `[score]` tables.

    Raises:
        ValueError: an entry or an option is unknown, or two entries return a signal of the same name.
    """
    tables = ([section] if section else []) if isinstance(section, Mapping) else list(section)
    single = isinstance(section, Mapping)
    entries = tuple(resolve(ScoreFile, table, "score" if single else f"score.{i}") for i, table in enumerate(tables))
    taken: dict[str, int] = {}
    for place, entry in enumerate(entries):
        for name in entry.hooks.signals(entry.config):
            if name in taken:
                raise ValueError(
                    f"score.{place} ({entry.name}) and score.{taken[name]} both return the signal {name!r}: give one "
                    "of them another name by its option `signal`"
                )
            taken[name] = place
    return entries
