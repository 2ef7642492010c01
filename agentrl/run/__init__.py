"""A run: its folder, its state, what rolls out, what learns, and what drives both."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrl.run.evaluated_policy import Contestant
    from agentrl.run.event_loop import Loop
    from agentrl.run.folder import RunFolder, versions
    from agentrl.run.metrics import Metrics, Stopwatch, read_metrics
    from agentrl.run.progress import Progress
    from agentrl.run.run import Run
    from agentrl.run.training import train
    from agentrl.settings.recipe import Settings

__all__ = [
    "Contestant",
    "Loop",
    "Metrics",
    "Progress",
    "Run",
    "RunFolder",
    "Settings",
    "Stopwatch",
    "read_metrics",
    "train",
    "versions",
]

_HOME = {
    "Contestant": "agentrl.run.evaluated_policy",
    "Loop": "agentrl.run.event_loop",
    "Metrics": "agentrl.run.metrics",
    "Progress": "agentrl.run.progress",
    "Run": "agentrl.run.run",
    "RunFolder": "agentrl.run.folder",
    "Settings": "agentrl.settings.recipe",
    "Stopwatch": "agentrl.run.metrics",
    "read_metrics": "agentrl.run.metrics",
    "train": "agentrl.run.training",
    "versions": "agentrl.run.folder",
}


def __getattr__(name: str) -> Any:
    """A public name, its module imported when it is first asked for."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
