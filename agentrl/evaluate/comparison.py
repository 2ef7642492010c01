"""Compare two evaluations of one panel, paired by task."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from agentrl.evaluate.stats import mcnemar, minimum_detectable, paired_bootstrap
from agentrl.files import read_text


def read_report(path: Path) -> dict[str, Any]:
    """Read a report with episodes; ValueError if the file is not one."""
    text = read_text(path, "report")
    try:
        report: dict[str, Any] = json.loads(text)
        report["panel"], report["benchmark"]
        for outcome in report["outcomes"]:
            if not isinstance(outcome["success"], bool) or not isinstance(outcome["task"], str):
                raise TypeError
            outcome["ending"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{path} is not a report with episodes: write one with agentrl eval --out") from None
    return report


def _success(report: dict[str, Any]) -> dict[str, float]:
    """Task key -> success rate over the samples of the task that did not end by an environment error."""
    samples: dict[str, list[bool]] = {}
    for outcome in report["outcomes"]:
        if outcome["ending"] != "env_error":
            samples.setdefault(outcome["task"], []).append(outcome["success"])
    return {task: sum(won) / len(won) for task, won in samples.items()}


def compare(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Paired difference a - b of the success rates on the tasks that have a scored sample in both reports.

    A sample is scored if it did not end by an environment error.

    Raises:
        ValueError: the panels or benchmarks differ, or no task has a scored sample in both reports.
    """
    if (a["panel"], a["benchmark"]) != (b["panel"], b["benchmark"]):
        raise ValueError(
            f"these are different panels ({a['benchmark']} {a['panel']}, {b['benchmark']} {b['panel']}): "
            "evaluate both policies on one panel, with the same --split and --tasks"
        )
    won = [_success(report) for report in (a, b)]
    tasks = [task for task in won[0] if task in won[1]]
    if not tasks:
        raise ValueError(
            "no task was played without an environment error in both reports: evaluate both policies on one panel again"
        )
    x, y = (np.array([float(w[task]) for task in tasks]) for w in won)  # [n], [n]
    return {
        "benchmark": a["benchmark"],
        "panel": a["panel"],
        "episodes": len(tasks),
        "success_a": float(x.mean()),
        "success_b": float(y.mean()),
        "difference": float((x - y).mean()),
        "interval": list(paired_bootstrap(x, y)),
        "only_a": int((x > y).sum()),
        "only_b": int((y > x).sum()),
        "p_value": mcnemar(int((x > y).sum()), int((y > x).sum())),
        "minimum_detectable": minimum_detectable(x - y),
    }
