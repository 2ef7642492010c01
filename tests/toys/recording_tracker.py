"""A tracker of one's own: it writes what it is given into the run's folder, and fails when it is told to."""

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from agentrl.trackers import Tracked


class Config(BaseModel, frozen=True, extra="forbid"):
    """When to fail."""

    fail: Literal["never", "make", "log", "close", "odd_lines"] = "never"


class Recording:
    def __init__(self, config: Config, file: Path) -> None:
        self.config, self.file, self.lines = config, file, 0

    def note(self, value: object) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps(value) + "\n")

    def log(self, stage, step, values):
        self.lines += 1
        if self.config.fail == "log" or (self.config.fail == "odd_lines" and self.lines % 2):
            raise ConnectionError("the server\nis away")
        self.note([stage, step, dict(values)])

    def close(self):
        if self.config.fail == "close":
            raise RuntimeError("no")
        self.note("closed")


def make(config: Config, run: Tracked) -> Recording:
    if config.fail == "make":
        raise OSError("cannot be reached")
    made = Recording(config, run.folder / "recorded.jsonl")
    made.note({"id": run.id, "name": run.name, "resumed": run.resumed, "seed": run.config["run"]["seed"]})
    return made
