"""The interface of a tracker: its file offers a frozen pydantic `Config`, and

    def make(config: Config, run: Tracked) -> Tracker

`make` imports the tool's package, opens the run in the tool, and must not ask the user anything.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from agentrl.catalogue import CatalogueFile, hook


class Tracker(Protocol):
    """A run that is open in a tool."""

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Send one line of metrics to the tool.

        Args:
            stage: train, clone, or `eval/MODE`.
            step: number of the iteration or, in the warm-up, of the update, from 0. After --resume some lines are sent
                again.
            values: finite numbers and NaN, by name.
        """

    def close(self) -> None:
        """Close the run in the tool, when the run ends or stops early."""


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """The run that a tracker opens in its tool.

    Attributes:
        id: identifier of the run, which stays the same after --resume; letters, digits, dots, dashes and underscores.
        name: `run.name`.
        folder: the run's folder.
        config: the run's configuration, without secrets.
        resumed: True if the run was tracked before; the tool then continues the earlier curve.
    """

    id: str
    name: str
    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    resumed: bool = False


@dataclass(frozen=True, kw_only=True)
class TrackerFile(CatalogueFile):
    """The file of a tracker.

    Attributes:
        make: see the module's docstring.
        package: the package that `make` imports; a missing package is reported before the run starts.
        extra: the optional dependencies (extra) of agentrl-stepgraph that install the package.
    """

    KIND: ClassVar[str] = "tracker"

    make: Callable[[Any, Tracked], Tracker] = hook(help="(config, run) -> Tracker")
    package: str = hook("PACKAGE", "the package that make imports", "")
    extra: str = hook("EXTRA", "the extra of agentrl-stepgraph that installs it", "")
