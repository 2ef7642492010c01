"""What the file of a tracker offers: a frozen pydantic `Config`, and

    def make(config: Config, run: Tracked) -> Tracker

`make` imports the tool's package, opens the run there, and must not ask the user anything.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from agentrl.catalogue import CatalogueFile, hook


class Tracker(Protocol):
    """A run that is open in a tool."""

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """One line of metrics.

        Args:
            stage: train, clone, or `eval/MODE`.
            step: number of the step in its stage, from 0; after --resume some steps come again.
            values: finite numbers and NaN, by name.
        """

    def close(self) -> None:
        """The run is closed, at its end or before."""


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """The run to open.

    Attributes:
        id: the same after every --resume, different for every run; letters, digits, dots, dashes and underscores.
        name: `run.name`.
        folder: the run's folder.
        config: the configuration, without secrets.
        resumed: the run was tracked before.
    """

    id: str
    name: str
    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    resumed: bool = False


@dataclass(frozen=True, kw_only=True)
class TrackerFile(CatalogueFile):
    """The file of a tracker; see the module.

    Attributes:
        make: see the module.
        package: the package that `make` imports, to say early that it is missing.
        extra: the extra of this project that installs it.
    """

    KIND: ClassVar[str] = "tracker"

    make: Callable[[Any, Tracked], Tracker] = hook(help="(config, run) -> Tracker")
    package: str = hook("PACKAGE", "the package that make imports", "")
    extra: str = hook("EXTRA", "the extra of agentrl-stepgraph that installs it", "")
