"""What a task sampler is: which tasks come next. A file in `algorithms/sampler/` offers a frozen `Config` and

    def make(config: Config, tasks: Sequence[Task], seed: int) -> Sampler

`SamplerFile` lists what else a file may offer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from agentrl.catalogue import CatalogueFile, hook
from agentrl.graph import StepGraph
from agentrl.types import Task


class Sampler(Protocol):
    """Draws tasks; a function of the seed and of what it was shown."""

    def draw(self, count: int) -> list[Task]:
        """The next `count` tasks."""
        ...

    def observe(self, graph: StepGraph) -> None:
        """See what became of the tasks drawn (names["group"] holds their keys)."""
        ...

    def state_dict(self) -> Mapping[str, Any]:
        """Everything needed to go on from here."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        ...


@dataclass(frozen=True, kw_only=True)
class SamplerFile(CatalogueFile):
    """The file of a sampler.

    Attributes:
        make: see the module.
        keep: [N] bool, the rows of groups worth an update; the other groups are drawn anew, at most `max_tries` rounds,
            an option that its `Config` must have.
        paper: one line for listings.
    """

    KIND: ClassVar[str] = "sampler"

    make: Callable[[Any, Sequence[Task], int], Sampler] = hook(help="(config, tasks, seed) -> Sampler")
    keep: Callable[[Any, StepGraph], np.ndarray] | None = hook(
        "", "(config, graph) -> [N] rows of groups worth an update", None
    )
    paper: str = hook("PAPER", "one line for listings", "")
