"""The interface of a regularizer: a term added to the policy loss, which may remember past updates.

A catalogue file in `algorithms/regularizer/` offers a frozen pydantic `Config` and

    def make(config: Config) -> Regularizer

Each policy of a run has its own regularizer, made anew at the start of a stage (warm-up, training). If a regularizer
has `state_dict` and `load_state_dict`, its state is part of the run's checkpoints. The file must not import torch when
it is imported, because recipes are read without torch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from agentrl.catalogue import CatalogueFile, hook
from agentrl.config import Entry
from agentrl.types import Stateful

if TYPE_CHECKING:
    from agentrl.loss import LossInputs, LossOutput


class Moment(NamedTuple):
    """One update, as a regularizer sees it before the first mini-batch.

    Attributes:
        turn: [C] int64, the turn of each copy of a row; `LossInputs.step` is an index into it.
        update: number of this update in its stage, from 0.
        updates: length of the stage, in updates.
        total: sums an array over the processes that share the learner. Each process sees only a part of the
            micro-batches, so a regularizer that remembers sums of an update calls `total` in `finish`, once on every
            process.
    """

    turn: np.ndarray
    update: int
    updates: int
    total: Callable[[np.ndarray], np.ndarray] = np.asarray


class Term(Protocol):
    """A regularizer in one update."""

    def __call__(self, inputs: "LossInputs") -> "LossOutput":
        """The term of each token [T], already multiplied by the weight of the token's row, and the metrics to log."""
        ...

    def finish(self) -> None:
        """Called after the last mini-batch of the update: store what this update adds to the regularizer's memory."""
        ...


class Regularizer(Protocol):
    """A term added to the policy loss."""

    def begin(self, moment: Moment) -> Term:
        """The term of the next update."""
        ...


@dataclass(frozen=True, kw_only=True)
class RegularizerFile(CatalogueFile):
    """The file of a regularizer.

    Attributes:
        make: see the module's docstring.
        entropy: the regularizer reads `LossInputs.entropy` and needs the entropy's gradient.
        reads: the names that the regularizer reads in `LossInputs.columns`. A name is a column of steps or tokens (NaN
            where there is no entry) or one of: `demonstrated`, the weight of the token's step if the step is a
            demonstration without a policy gradient, else 0; `advantage`, the advantage of the token's step;
            `succeeded`, 1 in episodes that succeeded, else 0.
        demonstrations: the regularizer trains demonstrations. Without such a regularizer, an update leaves out
            demonstrations that have no policy gradient.
        totals: does the regularizer call `Moment.total` on the sums that it remembers of an update? A run in which
            several processes share the learner refuses a regularizer that has a state and does not declare `TOTALS`.
        paper: the source of the regularizer, one line for listings.
    """

    KIND: ClassVar[str] = "regularizer"

    make: Callable[[Any], Regularizer] = hook(help="(config) -> Regularizer")
    entropy: bool = hook("ENTROPY", "it reads the tokens' entropies and needs their gradient", False)
    reads: tuple[str, ...] = hook("READS", "the names that it reads in LossInputs.columns", ())
    demonstrations: bool = hook("DEMONSTRATIONS", "it trains demonstrations", False)
    totals: bool = hook(
        "TOTALS", "it sums its memory of an update with Moment.total, so learner.processes may be above 1", False
    )
    paper: str = hook("PAPER", "the source of the regularizer, one line for listings", "")


class Regularizers:
    """The regularizers of one policy, in the recipe's order.

    Args:
        entries: the entries of `[[update.regularizers]]`.
    """

    def __init__(self, entries: Sequence[Entry[RegularizerFile]] = ()) -> None:
        self.entries = tuple(entries)
        self.restart()

    def restart(self) -> None:
        """Begin a stage with new regularizers, which remember no update."""
        self.instances = [entry.hooks.make(entry.config) for entry in self.entries]

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def entropy(self) -> bool:
        """Does a regularizer need the gradient of the tokens' entropies?"""
        return any(entry.hooks.entropy for entry in self.entries)

    @property
    def reads(self) -> set[str]:
        """The names that all regularizers together read in `LossInputs.columns`."""
        return {name for entry in self.entries for name in entry.hooks.reads}

    def begin(self, moment: Moment) -> list[Term]:
        """The terms of the next update."""
        return [regularizer.begin(moment) for regularizer in self.instances]

    def state_dict(self) -> dict[str, Any]:
        """The states of the regularizers that have one. A key is the regularizer's place in the recipe and its name."""
        return {key: regularizer.state_dict() for key, regularizer in self._stateful()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`; a regularizer whose state is absent begins anew."""
        for key, regularizer in self._stateful():
            if key in state:
                regularizer.load_state_dict(state[key])

    def _stateful(self) -> Iterator[tuple[str, Stateful]]:
        for place, (entry, regularizer) in enumerate(zip(self.entries, self.instances, strict=True)):
            if isinstance(regularizer, Stateful):
                yield f"{place}-{entry.name}", regularizer
