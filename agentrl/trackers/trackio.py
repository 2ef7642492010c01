"""Trackio: stores metrics in a local database, which `trackio show` displays, or in a Space of the Hugging Face hub.

Metrics go to a Space if `space_id` names one. Without `space_id` nothing leaves the machine. The environment variable
TRACKIO_DIR sets the folder of the database.
"""

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

from pydantic import BaseModel, Field

from agentrl.trackers.entry import Tracked

PACKAGE, EXTRA = "trackio", "trackio"


class Config(BaseModel, frozen=True, extra="forbid"):
    """Options of the tracker.

    Attributes:
        project: name of the trackio project to which the run belongs.
        group: name of a group of runs, which trackio shows together; empty: the run is in no group.
        space_id: the Space of the Hugging Face hub that gets the metrics, as USER/SPACE; empty: the metrics stay on
            this machine.
    """

    project: str = Field("agentrl", min_length=1)
    group: str = ""
    space_id: str = ""


class Trackio:
    """Sends lines of metrics to trackio, which writes them in a separate thread."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """See `agentrl.trackers.Tracker`."""
        with redirect_stdout(sys.stderr):
            self._run.log({f"{stage}/{name}": value for name, value in values.items()}, step=step)

    def close(self) -> None:
        """See `agentrl.trackers.Tracker`."""
        with redirect_stdout(sys.stderr):
            self._run.finish()


def make(config: Config, run: Tracked) -> Trackio:
    """Open or continue the run. Trackio identifies a run by its name, so `run.id` becomes the name."""
    import trackio

    with redirect_stdout(sys.stderr):  # trackio prints hints for the user, which must not mix with the program's output
        opened = trackio.init(
            project=config.project,
            name=run.id,
            group=config.group or None,
            space_id=config.space_id or None,
            config=dict(run.config),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
    return Trackio(opened)
