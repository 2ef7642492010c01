"""What a regularizer is: a term beside the policy loss, which may remember past updates.

A catalogue file in `algorithms/regularizer/` offers a frozen pydantic `Config` and

    def make(config: Config) -> Regularizer

Each policy of a run has its own regularizer, made anew at the start of a stage (warm-up, training). One with
`state_dict` and `load_state_dict` is kept in the run's checkpoints. The file must not import torch when it is imported,
because recipes are read without torch.
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
    """One update, as a regularizer sees it before its first mini-batch.

    turn: [C] int64, the turn of each step (or copy of a step) that `LossInputs.step` counts. update: number of this
    update in its stage. updates: length of the stage, in updates.
    """

    turn: np.ndarray
    update: int
    updates: int


class Term(Protocol):
    """A regularizer in one update."""

    def __call__(self, inputs: "LossInputs") -> "LossOutput":
        """What is added to the loss of each token [T], times the step's weight, and what is logged."""
        ...

    def finish(self) -> None:
        """The update is over: remember what was seen."""
        ...


class Regularizer(Protocol):
    """A term beside the policy loss."""

    def begin(self, moment: Moment) -> Term:
        """The term of the next update."""
        ...


@dataclass(frozen=True, kw_only=True)
class RegularizerFile(CatalogueFile):
    """The file of a regularizer.

    Attributes:
        make: see the module.
        entropy: it reads `LossInputs.entropy` and needs its gradient.
        paper: one line for listings.
    """

    KIND: ClassVar[str] = "regularizer"

    make: Callable[[Any], Regularizer] = hook(help="(config) -> Regularizer")
    entropy: bool = hook("ENTROPY", "it reads the tokens' entropies and needs their gradient", False)
    paper: str = hook("PAPER", "one line for listings", "")


class Regularizers:
    """The regularizers of one policy, in the recipe's order.

    Args:
        entries: of `[[update.regularizers]]`.
    """

    def __init__(self, entries: Sequence[Entry[RegularizerFile]] = ()) -> None:
        self.entries = tuple(entries)
        self.restart()

    def restart(self) -> None:
        """A stage begins: nothing is remembered."""
        self.own = [entry.hooks.make(entry.config) for entry in self.entries]

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def entropy(self) -> bool:
        """Does one of them need the gradient of the tokens' entropies?"""
        return any(entry.hooks.entropy for entry in self.entries)

    def begin(self, moment: Moment) -> list[Term]:
        """Their terms in the next update."""
        return [one.begin(moment) for one in self.own]

    def state_dict(self) -> dict[str, Any]:
        """State by place and name, of those that have any."""
        return {key: one.state_dict() for key, one in self._stateful()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken; one whose state is absent begins anew."""
        for key, one in self._stateful():
            if key in state:
                one.load_state_dict(state[key])

    def _stateful(self) -> Iterator[tuple[str, Stateful]]:
        for place, (entry, one) in enumerate(zip(self.entries, self.own, strict=True)):
            if isinstance(one, Stateful):
                yield f"{place}-{entry.name}", one
