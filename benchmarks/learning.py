"""Does the RL phase of a recipe learn? Seeds, held-out games, paired intervals, and a control of equal CPU time.

For each seed: the recipe as it is; plain GRPO from the same clone; and the control, one longer cloning stage (its
schedule stretched over the whole of it) that takes as many CPU seconds as cloning and RL together. All are evaluated on
the same panel, each game once, sampled and greedy, beside the demonstrator that was cloned.

    python benchmarks/learning.py --seeds 0 1 2 --jobs 2
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Semaphore
from typing import Any

import numpy as np

from agentrl.config import read_toml
from agentrl.stats import paired_bootstrap, wilson

MODES = ("sampled", "greedy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=Path("benchmarks/recipes/alfworld-cpu.toml"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--folder", type=Path, default=Path("runs/learning"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    given.gate = Semaphore(given.jobs)
    with ThreadPoolExecutor(3 * len(given.seeds)) as pool:  # threads wait for the gate, or for the run they follow
        first = {s: pool.submit(one, given, s, "rl") for s in given.seeds}
        rest = [pool.submit(one, given, s, kind, first[s]) for kind in ("control", "grpo") for s in given.seeds]
        runs = dict(job.result() for job in [*first.values(), *rest])
    result = summarise(given, runs, demonstrator(given, runs[given.seeds[0], "rl"]))
    out = given.out or Path("benchmarks/results") / f"{given.recipe.stem}.json"
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


def one(
    given: argparse.Namespace, seed: int, kind: str, after: Future[Any] | None = None
) -> tuple[tuple[int, str], Path]:
    """Train one run in a process of its own (or find it done), after the run it builds on; returns its folder."""
    rl: Path | None = None if after is None else after.result()[1]
    name = f"{kind}-{seed}"
    words = [
        str(given.recipe),
        f"run.name={name}",
        f"run.folder={given.folder}",
        f"run.seed={seed}",
        "run.graphs_every=0",
    ]
    if rl is None:
        words.append("run.keep=100")  # the clone's checkpoint is where GRPO starts
    elif kind == "grpo":
        clone = rl / "checkpoints" / "000000" / "policy"
        words += ['credit={name="grpo", std="none"}', f"model={{path='{clone}'}}", "warmup.updates=0"]
    else:
        words += [f"warmup.updates={equal_updates(given.recipe, rl)}", "run.iterations=0"]
    command = [sys.executable, "-m", "agentrl", "train", *words, "--resume"]
    with given.gate:
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    return (seed, kind), given.folder / name


def cpu_seconds(run: Path) -> dict[str, float]:
    """CPU seconds of each stage of a run."""
    spent: dict[str, float] = {}
    for line in (run / "timings.jsonl").read_text().splitlines():
        row = json.loads(line)
        spent[row["stage"]] = spent.get(row["stage"], 0.0) + sum(v for k, v in row.items() if k.endswith("_cpu_s"))
    return spent


def equal_updates(recipe: Path, rl: Path) -> int:
    """Cloning updates that take as long as the cloning and the RL of a run together."""
    spent = cpu_seconds(rl)
    return round(read_toml(recipe)["warmup"]["updates"] * (spent["clone"] + spent["train"]) / spent["clone"])


def demonstrator(given: argparse.Namespace, rl: Path) -> dict[str, Any]:
    """The report of the policy that was cloned, on the same panel under the same limits."""
    config, panel = read_toml(rl / "config.toml"), given.folder / "panel.txt"
    panel.write_text("".join(f"{o['task']}\n" for o in report(rl, "end", "greedy")["outcomes"]))
    out = given.folder / "demonstrator.json"
    options = [f"{k}={json.dumps(v)}" for k, v in {**config["env"], **config["eval"]["env"]}.items() if k != "name"]
    words = ["eval", "alfworld", *options, "--policy", config["warmup"]["expert"], "--panel", str(panel), "--json"]
    command = [sys.executable, "-m", "agentrl", *words, "--turns", str(config["limits"]["turns"]), "--out", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return dict(json.loads(out.read_text()))


def report(run: Path, name: str, mode: str) -> dict[str, Any]:
    return dict(json.loads((run / "evaluations" / f"{name}-{mode}.json").read_text()))


def won(reports: Sequence[dict[str, Any]]) -> np.ndarray:
    """[runs, tasks] 1 for success; the runs played the same panel."""
    assert len({r["panel"] for r in reports}) == 1, "reports of different panels"
    return np.array([[float(o["success"]) for o in r["outcomes"]] for r in reports])


def summarise(given: argparse.Namespace, runs: dict[tuple[int, str], Path], shown: dict[str, Any]) -> dict[str, Any]:
    """Success of every stage by seed, and the paired differences over seeds and games."""
    result: dict[str, Any] = {
        "recipe": str(given.recipe),
        "benchmark": shown["benchmark"],
        "panel": shown["panel"],
        "games": len(shown["outcomes"]),
        "seeds": given.seeds,
        "demonstrator": {"policy": shown["policy"]["policy"], "success": shown["success_rate"]},
        "cpu_seconds": {f"{kind}-{s}": cpu_seconds(path) for (s, kind), path in sorted(runs.items())},
    }
    teacher = won([shown] * len(given.seeds))
    for mode in MODES:
        stage = {
            name: won([report(runs[s, kind], at, mode) for s in given.seeds])
            for name, kind, at in (
                ("clone", "rl", "clone"),
                ("rl", "rl", "end"),
                ("grpo", "grpo", "end"),
                ("control", "control", "end"),
            )
        }
        pairs = {"rl - clone": (stage["rl"], stage["clone"]), "rl - control": (stage["rl"], stage["control"])}
        pairs |= {"rl - demonstrator": (stage["rl"], teacher), "rl - grpo": (stage["rl"], stage["grpo"])}
        result[mode] = {
            **{
                name: {"by_seed": x.mean(1).tolist(), "interval": [*wilson(x.sum(), x.size)]}
                for name, x in stage.items()
            },
            "differences": {
                name: {
                    "by_seed": (a - b).mean(1).tolist(),
                    "mean": float((a - b).mean()),
                    "interval": [*paired_bootstrap(a, b)],
                }
                for name, (a, b) in pairs.items()
            },
        }
    return result


def table(result: dict[str, Any]) -> str:
    """For the eye: percent by seed."""
    shown = result["demonstrator"]
    lines = [f"{result['benchmark']}, panel {result['panel']}, {result['games']} games, seeds {result['seeds']}"]
    lines.append(f"demonstrator {shown['policy']}: {shown['success']:.1%}")
    for mode in MODES:
        for name in ("clone", "control", "grpo", "rl"):
            rates = " ".join(f"{x:6.1%}" for x in result[mode][name]["by_seed"])
            lines.append(f"{mode:8} {name:20} {rates}")
        for name, d in result[mode]["differences"].items():
            rates = " ".join(f"{x:+6.1%}" for x in d["by_seed"])
            low, high = d["interval"]
            lines.append(f"{mode:8} {name:20} {rates}   mean {d['mean']:+.1%} [{low:+.1%}, {high:+.1%}]")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
