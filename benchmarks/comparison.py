"""Two or more training methods at an equal budget of generated tokens: tuned alike, several seeds, one held-out panel.

    python -m benchmarks.comparison benchmarks/comparisons/trees.toml --jobs 2

A plan names the sides, each a recipe with overrides, and the budget: every run ends with the iteration in which its
training rollouts have sampled that many tokens (cloning is not counted). Each side may try at most four configurations
on a tuning seed and tuning tasks; the best (mean of greedy and sampled success) is what its quoted runs take, on the
reporting panel. A side may also take what another side chose (`as`), or run as its recipe says. With [clone] a recipe's
cloning stage is run once per seed, and the overrides of a side may name its checkpoint: model={path='{clone}/policy'}.

The run folder is the queue: finished runs are found again, killed runs continue where they were, so the same command
can be given until it prints the table.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, Field, model_validator

from agentrl.config import validate
from agentrl.files import read_toml
from benchmarks import learning

MOST = 4  # largest number of configurations that a side tries
POINTS = 10  # of a learning curve
ENDLESS = "run.iterations=100000"  # the budget ends a run


class Side(BaseModel, frozen=True, extra="forbid"):
    """One method. set: overrides of all its runs. tried: lists of overrides, of which one is chosen. same: name of a
    side whose chosen overrides this side takes instead."""

    recipe: Path
    set: list[str] = []
    tried: list[list[str]] = Field([], max_length=MOST)
    same: str | None = Field(None, alias="as")


class Tuning(BaseModel, frozen=True, extra="forbid"):
    """Where configurations are chosen: a seed and tasks of its own."""

    seed: int
    set: list[str]


class Clone(BaseModel, frozen=True, extra="forbid"):
    """A recipe whose cloning stage several sides start from."""

    recipe: Path
    set: list[str] = []


class Plan(BaseModel, frozen=True, extra="forbid"):
    """What is compared. set: overrides of every run; all sides are compared in pairs."""

    title: str
    tokens: int = Field(ge=1)
    seeds: list[int]
    set: list[str] = []
    tuning: Tuning
    clone: Clone | None = None
    sides: dict[str, Side]

    @model_validator(mode="after")
    def _fair(self) -> "Plan":
        if self.tuning.seed in self.seeds:
            raise ValueError(f"tuning.seed {self.tuning.seed} is a reported seed: choose another")
        for name, side in self.sides.items():
            if side.same is not None and (side.tried or not self.sides.get(side.same, side).tried):
                raise ValueError(f"sides.{name}.as = {side.same!r} must name a side that tries configurations")
        return self


class Queue:
    """The runs of a plan under a folder, a few at a time."""

    def __init__(self, plan: Plan, folder: Path, jobs: int) -> None:
        self.plan, self.folder, self.jobs = plan, folder, jobs

    def run(self, wanted: dict[str, tuple[Side, int, list[str]]]) -> dict[str, Path]:
        """Train the runs that are not finished; returns each run's folder by name.

        Args:
            wanted: name of each run -> its side, seed and overrides.
        """
        with ThreadPoolExecutor(self.jobs) as pool:
            clones = {seed: pool.submit(self._clone, seed) for seed in sorted({seed for _, seed, _ in wanted.values()})}
            jobs = {name: pool.submit(self._side, name, *rest, clones[rest[1]]) for name, rest in wanted.items()}
            return {name: job.result() for name, job in jobs.items()}

    def _clone(self, seed: int) -> Path | None:
        """The checkpoint after a seed's cloning; None if the plan has no [clone]."""
        clone = self.plan.clone
        if clone is None:
            return None
        run = self._one(f"clone-{seed}", clone.recipe, seed, [*self.plan.set, *clone.set, "run.iterations=0"])
        return run / "checkpoints" / "000000"

    def _side(self, name: str, side: Side, seed: int, chosen: list[str], clone: Future[Path | None]) -> Path:
        limits = [ENDLESS, f"run.tokens={self.plan.tokens}", "eval.every=0"]
        words = [*self.plan.set, *side.set, *chosen, *limits]
        return self._one(name, side.recipe, seed, [word.replace("{clone}", str(clone.result())) for word in words])

    def _one(self, name: str, recipe: Path, seed: int, words: list[str]) -> Path:
        run = self.folder / name
        if all((run / "evaluations" / f"end-{mode}.json").exists() for mode in learning.MODES):
            return run
        where = [f"run.name={name}", f"run.folder={self.folder}", f"run.seed={seed}", "run.graphs_every=0"]
        command = [sys.executable, "-m", "agentrl", "train", str(recipe), *where, *words, "--resume"]
        done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--folder", type=Path, help="default: runs/comparison-PLAN")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/comparison-PLAN.json")
    given = parser.parse_args()
    try:
        plan = validate(Plan, read_toml(given.plan))
    except ValueError as error:
        parser.error(str(error))
    queue = Queue(plan, given.folder or Path("runs") / f"comparison-{given.plan.stem}", given.jobs)
    tuned = tune(queue)
    result = {"plan": str(given.plan), **summarise(plan, quote(queue, choices(plan, tuned))), "tuning": tuned}
    out = given.out or Path("benchmarks/results") / f"comparison-{given.plan.stem}.json"
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


def tune(queue: Queue) -> dict[str, list[dict[str, Any]]]:
    """The overrides that every side tried, in the order of the plan, with their results on the tuning tasks."""
    plan = queue.plan
    names = {(s, i): f"tune-{s}-{i}" for s, side in plan.sides.items() for i in range(len(side.tried))}
    runs = queue.run(
        {
            name: (plan.sides[s], plan.tuning.seed, [*plan.tuning.set, *plan.sides[s].tried[i]])
            for (s, i), name in names.items()
        }
    )
    found: dict[str, list[dict[str, Any]]] = {s: [] for s in plan.sides}
    for (s, i), name in names.items():
        rates = {mode: learning.report(runs[name], "end", mode)["success_rate"] for mode in learning.MODES}
        found[s].append({"set": plan.sides[s].tried[i], **rates, "mean": float(np.mean([*rates.values()]))})
    return found


def choices(plan: Plan, tuned: dict[str, list[dict[str, Any]]]) -> dict[str, list[str]]:
    """The overrides that each side's quoted runs take: the best of those that the side
    tried, and the first of equally good ones. A side with `same` takes the choice of that side."""
    best = {s: max(tried, key=lambda one: one["mean"])["set"] if tried else [] for s, tried in tuned.items()}
    return {s: best[side.same] if side.same else best[s] for s, side in plan.sides.items()}


def quote(queue: Queue, chosen: dict[str, list[str]]) -> dict[tuple[str, int], Path]:
    """The runs that are reported: side and seed -> folder. All sides of a seed run before the next seed, so that an
    interrupted queue leaves complete comparisons."""
    plan = queue.plan
    keys = [(s, seed) for seed in plan.seeds for s in plan.sides]
    runs = queue.run({f"{s}-{seed}": (plan.sides[s], seed, chosen[s]) for s, seed in keys})
    return {(s, seed): runs[f"{s}-{seed}"] for s, seed in keys}


def summarise(plan: Plan, runs: dict[tuple[str, int], Path]) -> dict[str, Any]:
    """Success by side and seed after cloning and at the end, paired differences of all sides, and the cost of each run.

    Raises:
        ValueError: the runs were not evaluated on the same tasks.
    """
    reports = {key: learning.report(path, "end", "greedy") for key, path in runs.items()}
    shown, *rest = reports.values()
    if any(asked(other) != asked(shown) for other in rest):
        raise ValueError(f"the runs were evaluated on different tasks: { ({r['panel'] for r in reports.values()}) }")
    result: dict[str, Any] = {
        "title": plan.title,
        "benchmark": shown["benchmark"],
        "panel": shown["panel"],
        "tasks": len(shown["outcomes"]),
        "tokens": plan.tokens,
        "spent": {f"{s}-{seed}": spent(path) for (s, seed), path in runs.items()},
        "curves": {f"{s}-{seed}": curve(path, plan.tokens) for (s, seed), path in runs.items()},
        "steps": {f"{s}-{seed}": steps(path) for (s, seed), path in runs.items()},
    }
    first = next(iter(plan.sides))
    for mode in learning.MODES:
        won = {
            f"{s}{mark}": {
                seed: learning.successes(learning.report(runs[s, seed], name, mode))
                for seed in plan.seeds
                if (runs[s, seed] / "evaluations" / f"{name}-{mode}.json").exists()
            }
            for s in plan.sides
            for mark, name in ((" clone", "clone"), ("", "end"))
        }
        if plan.clone:
            shared = {seed: runs[first, seed].parent / f"clone-{seed}" for seed in plan.seeds}
            won["clone of all"] = {s: learning.successes(learning.report(at, "end", mode)) for s, at in shared.items()}
        result[mode] = {name: learning.rates(by_seed) for name, by_seed in won.items() if by_seed}
        pairs = combinations(plan.sides, 2)
        result[mode]["differences"] = {f"{a} - {b}": _told_apart(won[a], won[b]) for a, b in pairs}
    return result


def _told_apart(a: dict[int, np.ndarray], b: dict[int, np.ndarray]) -> dict[str, Any]:
    """The paired difference of two sides, and the true difference that 8 of 10 such comparisons would find.

    The half width of a 95% interval is 1.96 standard errors; a difference of 1.96 + 0.84 standard errors is found
    with a power of 0.8. Both hold for means that are about normal, which few seeds make doubtful.
    """
    found = learning.difference(a, b)
    low, high = found["interval"]
    return {**found, "detectable": (high - low) / 2 * (1.96 + 0.84) / 1.96}


def asked(shown: dict[str, Any]) -> list[str]:
    """The tasks of a report, in order, without the name of the environment, because two environments may
    ask the same questions."""
    return [o["task"].partition("/")[2] for o in shown["outcomes"]]


def _train_rows(run: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["stage"] == "train"]


def curve(run: Path, tokens: int) -> list[float | None]:
    """Learning curve: success of the training episodes in each tenth of the token budget; None for a tenth in which no
    iteration began."""
    won, played, before = np.zeros(POINTS), np.zeros(POINTS), 0.0
    for row in _train_rows(run):
        place = min(POINTS - 1, int(before / tokens * POINTS))
        won[place] += row["success"] * row["episodes"]
        played[place] += row["episodes"]
        before += row["generated_tokens"]
    return [round(float(w / n), 4) if n else None for w, n in zip(won, played, strict=True)]


def steps(run: Path) -> dict[str, dict[str, float]]:
    """Mean number of steps per episode of the last evaluations: of all episodes, and of the successful ones."""
    found = {mode: learning.report(run, "end", mode) for mode in learning.MODES}
    return {mode: {name: one[name] for name in ("mean_steps", "mean_steps_success")} for mode, one in found.items()}


def spent(run: Path) -> dict[str, float]:
    """Iterations, sampled tokens, carried-out actions, episodes and CPU seconds of a run's training."""
    train = _train_rows(run)
    total = {name: sum(row[name] for row in train) for name in ("generated_tokens", "actions", "episodes")}
    return {"iterations": len(train), **total, "cpu_s": round(learning.cpu_seconds(run)["train"], 1)}


def table(result: dict[str, Any]) -> str:
    """The result as a table: percent by seed."""
    head = (
        f"{result['benchmark']}, panel {result['panel']}, {result['tasks']} tasks, {result['tokens']:,} tokens per run"
    )
    lines = [result["title"], head]
    for name, tried in result["tuning"].items():
        lines += [f"tried    {name:16} {one['mean']:6.1%}  {' '.join(one['set']) or 'as it is'}" for one in tried]
    for name, used in result["spent"].items():
        lines.append(f"spent    {name:16} " + "  ".join(f"{key} {value:,}" for key, value in used.items()))
    for mode in learning.MODES:
        part = {key: value for key, value in result[mode].items() if key != "differences"}
        lines += [f"{mode:8} {name:26} {learning.spread(found['by_seed'])}" for name, found in part.items()]
        lines += [learning.line(mode, name, d) for name, d in result[mode]["differences"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
