"""A run folder made by hand: a household world small enough to count, without a model."""

import json
from pathlib import Path

import numpy as np
import tomli_w

from agentrl.config import resolve
from agentrl.credit import CreditMethod, assign
from agentrl.graph import write_graph
from agentrl.types import Status
from tests.report.pages import graph_of, household

CONFIG = {
    "run": {"name": "house", "iterations": 3, "graphs_every": 1},
    "env": {"name": "household"},
    "model": {"path": "tiny"},
    "credit": {"name": "gigpo", "gamma": 0.5},
}


def graph(iteration: int):
    """The household's steps; in iteration I its first state is called `hall I`."""
    rows = household()
    for row in rows:
        for key in ("state", "next_state"):
            row[key] = row[key].replace("hall", f"hall {iteration}")
    steps = graph_of(rows)
    ended = np.where(steps.terminated, Status.DONE, np.where(steps.truncated, Status.TURN_LIMIT, Status.OK))
    return steps.with_columns(ending=ended.astype(steps.ending.dtype))


def store(run: Path, iteration: int) -> None:
    """One more iteration: its graph with the run's own credit, a line of metrics and a line of timings."""
    steps = graph(iteration)
    given = assign(resolve(CreditMethod, CONFIG["credit"]), steps).advantage
    write_graph(steps.with_columns(advantage=given), run / "graphs" / f"{iteration:06d}.safetensors")
    row = {"stage": "train", "step": iteration, "success": 2 / 3, "episodes": 3, "steps": 4.0, "generated_tokens": 600}
    seconds = {"rollout_s": 2.0, "credit_s": 0.5, "update_s": 1.5, "rollout_cpu_s": 1.0}
    append(run / "metrics.jsonl", {**row, "packed_tokens": 900.0, "env_error_share": 0.0, "constant_groups": 0.0})
    append(run / "timings.jsonl", {"stage": "train", "step": iteration, **seconds})


def append(path: Path, row: dict) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def evaluated(run: Path, name: str, step: int, won: int, of: int = 10) -> None:
    """One line of metrics for a held-out evaluation."""
    from agentrl.evaluate import wilson

    line = {"stage": "eval", "step": step, "name": name, "mode": "greedy", "episodes": of, "env_errors": 0}
    append(
        run / "metrics.jsonl",
        {**line, "success_rate": won / of, "interval": list(wilson(won, of)), "endings": {"done": of}},
    )
    append(run / "timings.jsonl", {"stage": "eval", "step": step, "evaluate_s": 3.0})


def stored_run(folder: Path, iterations: int = 2, **config: dict) -> Path:
    """A stopped run with so many stored iterations and an evaluation at its start."""
    (folder / "graphs").mkdir(parents=True)
    (folder / "evaluations").mkdir()
    named = {**CONFIG, "run": {**CONFIG["run"], "name": folder.name}}
    (folder / "config.toml").write_text(tomli_w.dumps({**named, **config}))
    (folder / "versions.json").write_text("{}")
    (folder / ".lock").touch()
    evaluated(folder, "start", 0, 1)
    for iteration in range(iterations):
        store(folder, iteration)
    return folder
