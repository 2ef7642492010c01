"""Do the defaults learn? Each environment is trained with a recipe of [env], [eval.env] and [model.new], nothing else.

    python -m benchmarks.defaults --iterations 10 --tasks 60
    python -m benchmarks.defaults sokoban alfworld-gen

It trains one environment after the other, and prints held-out sampled success before the warm-up, after it and at the
end, CPU seconds, and what the rules of health said. Finished runs are read and not repeated; a stopped one goes on.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import tomli_w

from agentrl.files import read_json, read_toml
from benchmarks.learning import cpu_seconds

ENVIRONMENTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # name -> [env], [eval.env]
    "alfworld-gen": ({"split": "train"}, {"split": "valid_unseen"}),
    "webshop-gen": ({"split": "train"}, {"split": "test"}),
    "search-gen": ({"split": "train"}, {"split": "test"}),
    "sokoban": ({"split": "train"}, {"split": "test"}),
    "notes": ({"split": "train"}, {"split": "test"}),
    "calculator": ({"split": "train"}, {"split": "test"}),
    "code_math": ({"split": "train"}, {"split": "test"}),
    "code_repair": ({"split": "train"}, {"split": "test"}),
    "CliffWalking-v1": ({"name": "gymnasium_text", "id": "CliffWalking-v1", "split": "train"}, {"split": "test"}),
    "FrozenLake-v1": ({"name": "gymnasium_text", "id": "FrozenLake-v1", "split": "train"}, {"split": "test"}),
}
STAGES = ("start", "clone", "end")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(ENVIRONMENTS)} (default: all)")
    parser.add_argument("--iterations", type=int, help="default: that of a recipe")
    parser.add_argument("--tasks", type=int, default=200, help="held-out tasks per evaluation")
    parser.add_argument("--folder", type=Path, default=Path("runs/defaults"))
    given = parser.parse_args()
    unknown = {*given.names} - {*ENVIRONMENTS}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(ENVIRONMENTS)}")
    print("| environment | cloned | start | clone | end | iterations | CPU s | health |\n" + "| --- " * 8 + "|")
    for name in given.names or ENVIRONMENTS:
        print(row(name, trained(name, given.folder, given.tasks, given.iterations)), flush=True)


def trained(name: str, folder: Path, tasks: int, iterations: int | None = None) -> Path:
    """The folder of the run with default settings, after it has ended; it trains in a process of its own."""
    env, held_out = ENVIRONMENTS[name]
    folder.mkdir(parents=True, exist_ok=True)
    recipe = folder / f"{name}.toml"
    recipe.write_text(tomli_w.dumps({"env": {"name": name, **env}, "eval": {"env": held_out}, "model": {"new": {}}}))
    words = [f"run.folder={folder}", f"eval.tasks={tasks}", "eval.modes=['sampled']", "run.graphs_every=0"]
    words += [] if iterations is None else [f"run.iterations={iterations}"]
    if not (folder / name / "evaluations" / "end-sampled.json").exists():
        command = [sys.executable, "-m", "agentrl", "train", str(recipe), *words, "--resume"]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
    return folder / name


def success(run: Path, stage: str) -> tuple[float, float, float]:
    """Sampled success of a stage, and its 95% interval."""
    report = read_json(run / "evaluations" / f"{stage}-sampled.json", "evaluation")
    low, high = report["interval"]
    return report["success_rate"], low, high


def row(name: str, run: Path) -> str:
    """The run as a line of the table."""
    config = read_toml(run / "config.toml")
    shown = []
    for stage in STAGES:
        rate, low, high = success(run, stage)
        shown.append(f"{100 * rate:.0f} ({100 * low:.0f} to {100 * high:.0f})")
    rules = [one["rule"] for one in json.loads((run / "health.json").read_text())["findings"]]
    cloned = config["warmup"]["expert"] + (", its best" if config["warmup"].get("clone") == "best" else "")
    seconds = sum(cpu_seconds(run).values())
    cells = [name, cloned, *shown, config["run"]["iterations"], f"{seconds:.0f}", ", ".join(rules) or "none"]
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
