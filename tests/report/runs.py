"""A run's folder made by hand: few numbers, each of which a test can count."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from agentrl.graph import StepGraph, write_graph
from agentrl.settings import Settings
from tests.report.pages import CHAINS, graph_of, household

RECIPE: dict[str, Any] = {
    "run": {"iterations": 3, "seed": 7},
    "env": {"name": "alfworld-gen"},
    "model": {"new": {}},
    "credit": {"name": "gigpo", "std": "none"},
}


def tasks(won: dict[str, bool], kinds: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Outcomes of an evaluation: task -> did it succeed?"""
    return [
        {
            "task": task,
            "kind": (kinds or {}).get(task, "fetch"),
            "success": success,
            "ending": "done" if success else "turn_limit",
            "steps": 4,
        }
        for task, success in won.items()
    ]


def evaluation(run: Path, name: str, outcomes: list[dict[str, Any]], mode: str = "sampled", panel: str = "p1") -> None:
    (run / "evaluations").mkdir(exist_ok=True)
    report = {"benchmark": "toy", "panel": panel, "outcomes": outcomes}
    (run / "evaluations" / f"{name}-{mode}.json").write_text(json.dumps(report))


def eval_row(name: str, step: int, rate: float, episodes: int = 4, mode: str = "sampled") -> dict[str, Any]:
    return {
        "stage": "eval",
        "step": step,
        "name": name,
        "mode": mode,
        "benchmark": "toy",
        "panel": "p1",
        "policy": {"model": "Toy", "parameters": 1234, "dtype": "float32"},
        "episodes": episodes,
        "success_rate": rate,
        "interval": [max(0.0, rate - 0.25), min(1.0, rate + 0.25)],
        "per_type": {"fetch": {"episodes": episodes, "success_rate": rate, "interval": [0.0, 1.0]}},
        "mean_reward": rate,
        "mean_steps": 5.5,
        "endings": {"done": 4},
        "env_errors": 0,
        "invalid_share": 0.0,
    }


def train_row(step: int, **values: Any) -> dict[str, Any]:
    row = {"stage": "train", "step": step, "success": 0.25 * (step + 1), "reward": 0.5, "episodes": 3}
    row |= {"generated_tokens": 100 * (step + 1), "constant_groups": 0.0, "entropy": 0.9 - 0.1 * step}
    row |= {"credit_mass_turn_0": 0.75, "credit_mass_turn_10": 0.05, "credit_mass_turn_2": 0.2}
    return row | {"invalid_share": 0.0, "env_error_share": 0.0, "loss": 0.1, "grad_norm": 1.0} | values


def rows_of() -> list[dict[str, Any]]:
    """Clone at 25%, three iterations, end at 75%."""
    train = [train_row(step) for step in range(3)]
    return [eval_row("clone", 0, 0.25), *train, eval_row("end", 3, 0.75)]


def stored(rows: list[dict[str, Any]], **columns: np.ndarray) -> StepGraph:
    """A graph as a run stores it: with endings, and the advantage of the run's method."""
    graph = graph_of(rows)
    ending = np.where(graph.last, np.where(graph.succeeded, 10, 11), 0).astype(np.int8)
    given = np.arange(len(graph)) / 10.0
    return graph.with_columns(ending=ending, advantage=given, credit_weight=np.ones(len(graph)), **columns)


def make_run(run: Path, rows: list[dict[str, Any]] | None = None, graphs: int = 3, **recipe: Any) -> Path:
    """The folder of a run that went from 1 of 4 to 3 of 4 held-out tasks."""
    run.mkdir(parents=True)
    settings = Settings({**RECIPE, "run": {**RECIPE["run"], "name": run.name}, **recipe})
    (run / "config.toml").write_text(tomli_w.dumps(settings.shown()))
    (run / "versions.json").write_text(json.dumps({"python": "3.11.7", "torch": "2.6"}))
    rows = rows_of() if rows is None else rows
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    times = [{"stage": r["stage"], "step": r["step"], "rollout_cpu_s": 2.0, "rollout_s": 3.0} for r in rows]
    (run / "timings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in times))
    for iteration in range(graphs):
        write_graph(stored(household()), run / "graphs" / f"{iteration:06d}.safetensors")
    evaluation(run, "clone", tasks({"t0": True, "t1": False, "t2": False, "t3": False}))
    evaluation(run, "end", tasks({"t0": True, "t1": True, "t2": True, "t3": False}))
    return run


def held_out_graph(chains: dict[str, str]) -> StepGraph:
    """Held-out episodes: task -> name of the chain (`CHAINS`) that it plays."""
    by_name = {name: [row for row in household() if row["episode"] == name] for name in CHAINS}
    return stored([row | {"group": task, "episode": task} for task, name in chains.items() for row in by_name[name]])
