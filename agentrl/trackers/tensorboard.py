"""TensorBoard: writes events into the folder RUN/tensorboard, which `tensorboard --logdir runs` shows."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from agentrl.trackers.entry import Tracked

PACKAGE, EXTRA = "tensorboardX", "tensorboard"


class Config(BaseModel, frozen=True, extra="forbid"):
    """No options."""


class TensorBoard:
    """Writes events, each under the tag STAGE/NAME."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """See `agentrl.trackers.Tracker`."""
        for name, value in values.items():
            self._writer.add_scalar(f"{stage}/{name}", value, step)

    def close(self) -> None:
        """See `agentrl.trackers.Tracker`."""
        self._writer.close()


def make(config: Config, run: Tracked) -> TensorBoard:
    """A writer of the folder RUN/tensorboard; after --resume it adds a file to this folder."""
    from tensorboardX import SummaryWriter

    folder = run.folder / "tensorboard"
    # tensorboardX names a file after the time, in seconds. Without a suffix, a run that is resumed within the same
    # second would overwrite the older file.
    files = len(list(folder.glob("*tfevents*")))
    return TensorBoard(SummaryWriter(str(folder), filename_suffix=f".{files}"))
