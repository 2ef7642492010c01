"""What a task sampler is: it draws the tasks of the next batch. A file in `algorithms/sampler/` offers `Config` and

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
    """Draws tasks; its draws depend only on its seed and on the graphs that `observe` got."""

    def draw(self, count: int) -> list[Task]:
        """The next `count` tasks."""
        ...

    def observe(self, graph: StepGraph) -> None:
        """Learn from the episodes of the drawn tasks; `graph.names["group"]` holds the keys of the tasks."""
        ...

    def state_dict(self) -> Mapping[str, Any]:
        """State for a checkpoint."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        ...


@dataclass(frozen=True, kw_only=True)
class SamplerFile(CatalogueFile):
    """The file of a sampler.

    Attributes:
        make: see the module.
        keep: [N] bool, the rows of groups to train on. The other groups are replaced by new ones, in at most
            `max_tries` rounds; `Config` must have the option `max_tries`.
        paper: one line for listings.
    """

    KIND: ClassVar[str] = "sampler"

    make: Callable[[Any, Sequence[Task], int], Sampler] = hook(help="(config, tasks, seed) -> Sampler")
    keep: Callable[[Any, StepGraph], np.ndarray] | None = hook(
        "", "(config, graph) -> [N] rows of groups worth an update", None
    )
    paper: str = hook("PAPER", "one line for listings", "")
