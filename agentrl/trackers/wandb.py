"""Weights & Biases. With `mode` auto, metrics go to the server if there is an API key, else to files in RUN/wandb.

The key comes from the environment variable WANDB_API_KEY or from `wandb login`, never from a recipe.
`wandb sync RUN/wandb/offline-*` sends the files of an offline run to the server later. If the environment variable
WANDB_MODE is set, it overrides `mode`.
"""

import netrc
import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any, Literal

from pydantic import BaseModel, Field

from agentrl.trackers.entry import Tracked

PACKAGE, EXTRA = "wandb", "wandb"
HOST = "api.wandb.ai"
START_S = 30.0  # longest time that `wandb.init` may take to reach the server


class Config(BaseModel, frozen=True, extra="forbid"):
    """Options of the tracker.

    Attributes:
        project: name of the Weights & Biases project to which the run belongs.
        entity: the user or team that owns the project; empty: the default of the account to which the API key belongs.
        group: name of a group of runs, which Weights & Biases shows together; empty: the run is in no group.
        mode: where metrics go: to the server (online), to files in RUN/wandb (offline), or to the server if there is an
            API key, else to files (auto).
    """

    project: str = Field("agentrl", min_length=1)
    entity: str = ""
    group: str = ""
    mode: Literal["auto", "online", "offline"] = "auto"


class WeightsAndBiases:
    """Sends lines of metrics. Every stage has its own axis, STAGE/step, because each stage counts its steps from 0."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._stages: set[str] = set()

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """See `agentrl.trackers.Tracker`."""
        if stage not in self._stages:
            self._run.define_metric(f"{stage}/step", hidden=True)
            self._run.define_metric(f"{stage}/*", step_metric=f"{stage}/step")
            self._stages.add(stage)
        self._run.log({f"{stage}/step": step, **{f"{stage}/{name}": value for name, value in values.items()}})

    def close(self) -> None:
        """See `agentrl.trackers.Tracker`."""
        with redirect_stdout(sys.stderr):
            self._run.finish()


def make(config: Config, run: Tracked) -> WeightsAndBiases:
    """Open the run `run.id`, or continue it."""
    import wandb

    with redirect_stdout(sys.stderr):
        opened = wandb.init(
            project=config.project,
            entity=config.entity or None,
            group=config.group or None,
            id=run.id,
            name=run.name,
            resume="allow",
            dir=str(run.folder),
            config=dict(run.config),
            mode=chosen_mode(config),
            settings=wandb.Settings(silent=True, init_timeout=START_S, disable_git=True, save_code=False),
        )
    return WeightsAndBiases(opened)


def chosen_mode(config: Config) -> Any:
    """The value of WANDB_MODE if it is set, else `mode`; auto becomes online if there is an API key, else offline."""
    if os.environ.get("WANDB_MODE"):
        return os.environ["WANDB_MODE"]
    return config.mode if config.mode != "auto" else "online" if _has_key() else "offline"


def _has_key() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators(HOST) is not None
    except (OSError, netrc.NetrcParseError):
        return False
