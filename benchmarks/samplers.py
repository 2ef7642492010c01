"""How many groups teach under each sampler, in a world of tasks whose success is known. No model is trained.

    python -m benchmarks.samplers [--out benchmarks/results/samplers]

Each of 200 tasks has a success probability p, drawn from a U-shaped Beta(0.3, 0.3), so that most tasks are solved
nearly always or nearly never. A batch has 8 tasks with 8 copies each; every sampler plays the copies of 200 batches. A
group varies if its outcomes differ. Only such a group teaches; its worth is p (1 - p)^2, the gain of Knapsack RL. In
the world where success rises, a group that varies raises the log-odds of its task by 0.1, and every batch raises the
log-odds of all tasks by 0.0005.

Reported over 10 seeds, with a 95% interval of the mean: the share of groups that vary, their worth per copy, and the
number of different tasks that were played. `dynamic` draws new tasks in place of constant groups, whose copies count
as played.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from agentrl.config import resolve
from agentrl.graph import COLUMNS, StepGraph
from agentrl.rollout import Allocator
from agentrl.types import Task
from benchmarks.result_files import write

TASKS, BATCH, COPIES, BATCHES, SEEDS = 200, 8, 8, 200, 10
SAMPLERS: dict[str, dict[str, Any]] = {
    "uniform": {"name": "uniform"},
    "posterior": {"name": "posterior"},
    "posterior, decay 1": {"name": "posterior", "decay": 1.0},
    "knapsack": {"name": "knapsack"},
    "dynamic": {"name": "dynamic"},
}


def played(tasks: list[Task], outcomes: list[np.ndarray]) -> StepGraph:
    """The graph of one-step episodes with these outcomes [copies] per task."""
    scores = np.concatenate(outcomes) if outcomes else np.zeros(0)
    n = len(scores)
    columns = {name: np.zeros(n, kind) for name, kind in COLUMNS.items()}
    columns |= {"parent": np.full(n, -1), "caller": np.full(n, -1), "reward": scores.astype(float)}
    columns |= {name: np.arange(n) for name in ("episode", "rollout", "tree")}
    columns |= {"valid": np.ones(n, bool), "weight": np.ones(n), "terminated": np.ones(n, bool)}
    columns["group"] = np.repeat(np.arange(len(outcomes)), [len(one) for one in outcomes])
    return StepGraph(columns=columns, names={"group": tuple(task.key for task in tasks)})


def run(options: dict[str, Any], seed: int, drifts: bool) -> dict[str, float]:
    """One sampler in one world."""
    rng = np.random.default_rng(seed)
    odds = np.log(1e-9 + (p := rng.beta(0.3, 0.3, TASKS))) - np.log(1e-9 + 1 - p)  # [TASKS]
    tasks = [Task(key=str(i), env="none", seed=i) for i in range(TASKS)]
    entry = resolve("sampler", options)
    sampler = entry.hooks.make(entry.config, tasks, seed)
    spent = varied = groups = 0
    worth, seen = 0.0, set[int]()
    while spent < BATCHES * BATCH * COPIES:
        draws = sampler.draw(BATCH)
        number = [int(draw.task.key) for draw in draws]
        p = 1 / (1 + np.exp(-odds))  # [TASKS]
        outcomes = [
            rng.random(COPIES if draw.copies is None else draw.copies) < p[i]
            for i, draw in zip(number, draws, strict=True)
        ]
        if isinstance(sampler, Allocator):
            first = played([draw.task for draw in draws], outcomes)
            more = sampler.further(draws, first, BATCH * COPIES - sum(map(len, outcomes)))
            outcomes = [np.append(one, rng.random(k) < p[i]) for one, k, i in zip(outcomes, more, number, strict=True)]
        sampler.observe(played([draw.task for draw in draws], outcomes))
        spent += sum(map(len, outcomes))
        teaches = np.array([one.any() and not one.all() for one in outcomes])
        if options["name"] == "dynamic":  # constant groups are dropped, and other tasks are drawn in their place
            groups += int(teaches.sum())
        else:
            groups += len(outcomes)
        varied += int(teaches.sum())
        worth += float(sum(p[i] * (1 - p[i]) ** 2 for i, one in zip(number, teaches, strict=True) if one))
        seen |= set(number)
        if drifts:
            for i in np.array(number)[teaches]:
                odds[i] += 0.1
            odds += 0.0005
    return {
        "share": varied / max(1, groups),
        "per_1000": 1000 * varied / spent,
        "worth": 1000 * worth / spent,
        "tasks": len(seen),
    }


def table(found: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = ["# How many groups teach under each sampler", "", *__doc__.split("\n\n", 2)[2].strip().splitlines(), ""]
    for world, rows in found.items():
        lines += [
            f"## {world}",
            "",
            "| sampler | groups that vary | per 1,000 copies | worth per 1,000 copies | tasks played |",
        ]
        lines.append("| --- | --- | --- | --- | --- |")
        for name, row in rows.items():
            share, often, worth, tasks = (row[key] for key in ("share", "per_1000", "worth", "tasks"))
            lines.append(
                f"| {name} | {share[0]:.1%} ± {share[1]:.1%} | {often[0]:.1f} ± {often[1]:.1f} | "
                f"{worth[0]:.2f} ± {worth[1]:.2f} | {tasks[0]:.0f} |"
            )
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/samplers"))
    given = parser.parse_args()
    found: dict[str, Any] = {}
    for world, drifts in (("fixed success", False), ("success that rises", True)):
        found[world] = {}
        for name, options in SAMPLERS.items():
            runs = [run(options, seed, drifts) for seed in range(SEEDS)]
            found[world][name] = {
                key: [float(np.mean(x)), float(2.26 * np.std(x, ddof=1) / np.sqrt(SEEDS))]  # t of 9 degrees of freedom
                for key in runs[0]
                for x in [[one[key] for one in runs]]
            }
    write(given.out, found, table(found))


if __name__ == "__main__":
    main()
