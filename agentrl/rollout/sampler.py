"""What a task sampler is: which tasks come next. A file in `algorithms/sampler/` offers a frozen `Config` and

    def make(config: Config, tasks: Sequence[Task], seed: int) -> Sampler

and may offer `keep(config, graph) -> [N] bool`: the rows of groups worth an update; the rest is drawn anew.
"""

from collections.abc import Mapping
from typing import Protocol

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

    def state(self) -> Mapping[str, object]:
        """JSON values from which `restore` goes on exactly here."""
        ...

    def restore(self, state: Mapping[str, object]) -> None:
        """Go on from a checkpoint."""
        ...
