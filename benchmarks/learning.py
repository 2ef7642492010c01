"""Does the RL phase of a recipe learn? Seeds, held-out games, paired intervals, and a control that only clones.

For each seed: the unchanged recipe; plain GRPO from the same clone; and the control, one longer cloning stage (its
schedule stretched over the whole of it). The number of its updates is set beforehand, so that at the speed of the run's
own cloning they would take the CPU seconds of cloning and RL together; the report has the CPU seconds that they took.
All runs are evaluated on the same panel, each game once, sampled and greedy, beside the demonstrator that was cloned.

    python benchmarks/learning.py --seeds 0 1 2 --jobs 2
    python benchmarks/learning.py --recipe benchmarks/recipes/alfworld-cpu-long.toml --no-grpo --jobs 2
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Semaphore
from typing import Any

import numpy as np

from agentrl.evaluate import paired_bootstrap, wilson
from agentrl.files import read_toml

MODES = ("sampled", "greedy")
NO_GRAPHS = "run.graphs_every=0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=Path("benchmarks/recipes/alfworld-cpu.toml"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--folder", type=Path, default=Path("runs/learning"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--no-grpo", action="store_true", help="leave the GRPO runs out")
    parser.add_argument("--control-seeds", type=int, nargs="*", help="seeds that have a control (default: all)")
    parser.add_argument("--beside", nargs="*", default=[], help="players to show beside the demonstrator: random ...")
    parser.add_argument("--summarise", action="store_true", help="train nothing: report the runs that are finished")
    given = parser.parse_args()
    given.runs_beside = {
        "control": given.seeds if given.control_seeds is None else given.control_seeds,
        "grpo": [] if given.no_grpo else given.seeds,
    }
    runs = finished(given) if given.summarise else train(given)
    first = runs[given.seeds[0], "rl"]
    result = summarise(given, runs, player(given, first, read_toml(first / "config.toml")["warmup"]["expert"]))
    result["beside"] = {name: figures(player(given, first, name)) for name in given.beside}
    out = given.out or Path("benchmarks/results") / f"{given.recipe.stem}.json"
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


def finished(given: argparse.Namespace) -> dict[tuple[int, str], Path]:
    """The folders of the runs that reached their end."""
    wanted = [(s, kind) for kind, seeds in {"rl": given.seeds, **given.runs_beside}.items() for s in seeds]
    folders = {(s, kind): given.folder / f"{kind}-{s}" for s, kind in wanted}
    found = {key: path for key, path in folders.items() if (path / "evaluations" / "end-greedy.json").exists()}
    if (given.seeds[0], "rl") not in found:
        sys.exit(f"{given.folder} holds no finished run of seed {given.seeds[0]}: wait for it, or name other --seeds")
    return found


def train(given: argparse.Namespace) -> dict[tuple[int, str], Path]:
    """The folder of every run; runs that are finished are not trained again."""
    given.gate = Semaphore(given.jobs)
    with ThreadPoolExecutor(3 * len(given.seeds)) as pool:  # a thread waits for the gate, or for the RL run of its seed
        first = {s: pool.submit(one, given, s, "rl") for s in given.seeds}
        rest = [pool.submit(one, given, s, kind, first[s]) for kind, seeds in given.runs_beside.items() for s in seeds]
        return dict(job.result() for job in [*first.values(), *rest])


def one(
    given: argparse.Namespace, seed: int, kind: str, after: Future[Any] | None = None
) -> tuple[tuple[int, str], Path]:
    """Train one run in a process of its own (or find it done), after the RL run `after`; returns its folder."""
    rl: Path | None = None if after is None else after.result()[1]
    name = f"{kind}-{seed}"
    words = [
        str(given.recipe),
        f"run.name={name}",
        f"run.folder={given.folder}",
        f"run.seed={seed}",
    ]
    if rl is None:  # GRPO starts from the clone's checkpoint; graphs are stored for `agentrl report --diagnose`
        words.append("run.keep=100")
    elif kind == "grpo":
        clone = rl / "checkpoints" / "000000" / "policy"
        words += ['credit={name="grpo", std="none"}', f"model={{path='{clone}'}}", "warmup.updates=0", NO_GRAPHS]
    else:
        words += [f"warmup.updates={equal_updates(given.recipe, rl)}", "run.iterations=0", NO_GRAPHS]
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
    """Number of cloning updates that take the CPU seconds of cloning and RL, at the speed of the run's own cloning."""
    spent = cpu_seconds(rl)
    return round(read_toml(recipe)["warmup"]["updates"] * (spent["clone"] + spent["train"]) / spent["clone"])


def player(given: argparse.Namespace, rl: Path, name: str) -> dict[str, Any]:
    """The report of a player without a model, on the same panel under the same limits."""
    config, panel = read_toml(rl / "config.toml"), given.folder / "panel.txt"
    panel.write_text("".join(f"{o['task']}\n" for o in report(rl, "end", "greedy")["outcomes"]))
    out = given.folder / f"{name}.json"
    env = {**config["env"], **config["eval"]["env"]}
    options = [word for key, value in env.items() if key != "name" for word in overrides(key, value)]
    words = ["eval", env["name"], *options, "--policy", name, "--panel", str(panel), "--json"]
    command = [
        sys.executable,
        "-m",
        "agentrl",
        *words,
        "--turns",
        str(config["limits"]["turns"]),
        "--out",
        str(out),
        "--force",
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return dict(json.loads(out.read_text()))


def overrides(key: str, value: Any) -> list[str]:
    """A value as words KEY=VALUE of the command line; a table gives one word per key."""
    if isinstance(value, dict):
        return [word for name, inner in value.items() for word in overrides(f"{key}.{name}", inner)]
    return [f"{key}={json.dumps(value)}"]


def figures(shown: dict[str, Any]) -> dict[str, Any]:
    """Success of one report, and its mean score if the environment gives scores between failure and success."""
    found = {"policy": shown["policy"]["policy"], "success": shown["success_rate"], "interval": shown["interval"]}
    return {**found, "score": float(scores(shown).mean())} if graded(shown) else found


def report(run: Path, name: str, mode: str) -> dict[str, Any]:
    return dict(json.loads((run / "evaluations" / f"{name}-{mode}.json").read_text()))


STAGES = {"clone": ("rl", "clone"), "rl": ("rl", "end"), "grpo": ("grpo", "end"), "control": ("control", "end")}


def summarise(given: argparse.Namespace, runs: dict[tuple[int, str], Path], shown: dict[str, Any]) -> dict[str, Any]:
    """Success of every stage by seed; paired differences over games and over the seeds that both stages have."""
    result: dict[str, Any] = {
        "recipe": str(given.recipe),
        "benchmark": shown["benchmark"],
        "panel": shown["panel"],
        "games": len(shown["outcomes"]),
        "seeds": given.seeds,
        "demonstrator": figures(shown),
        "cpu_seconds": {f"{kind}-{s}": cpu_seconds(path) for (s, kind), path in sorted(runs.items())},
    }
    for mode in MODES:
        won = outcomes(given, runs, shown, mode, successes)
        result[mode] = {name: rates(by_seed) for name, by_seed in won.items() if by_seed}
        result[mode]["differences"] = differences(won)
        if graded(shown):
            score = outcomes(given, runs, shown, mode, scores)
            means = {
                name: {s: float(x.mean()) for s, x in by_seed.items()} for name, by_seed in score.items() if by_seed
            }
            result[mode]["score"] = {"by_seed": means, "differences": differences(score)}
        result[mode]["per_type"] = {
            name: by_type([report(runs[s, kind], at, mode) for s in given.seeds if (s, kind) in runs])
            for name, (kind, at) in STAGES.items()
            if won[name]
        }
    return result


Outcomes = dict[str, dict[int, np.ndarray]]  # stage -> seed -> [games]


def outcomes(
    given: argparse.Namespace,
    runs: dict[tuple[int, str], Path],
    shown: dict[str, Any],
    mode: str,
    of: Callable[[dict[str, Any]], np.ndarray],
) -> Outcomes:
    """What `of` reads from the reports of each stage and seed; the demonstrator is the same for all seeds."""
    found = {
        name: {s: of(report(runs[s, kind], at, mode)) for s in given.seeds if (s, kind) in runs}
        for name, (kind, at) in STAGES.items()
    }
    return {**found, "demonstrator": {s: of(shown) for s in given.seeds}}


def differences(found: Outcomes) -> dict[str, Any]:
    """Paired differences of the RL runs to each other stage."""
    others = ("clone", "control", "demonstrator", "grpo")
    return {f"rl - {o}": difference(found["rl"], found[o]) for o in others if found[o]}


def graded(shown: dict[str, Any]) -> bool:
    """Does the environment give scores between failure and success?"""
    return "score" in shown["measures"]


def scores(shown: dict[str, Any]) -> np.ndarray:
    """[games] score in 0..1, in panel order."""
    return np.array([o["measures"]["score"] for o in shown["outcomes"]])


def by_type(reports: list[dict[str, Any]]) -> dict[str, float]:
    """Success of each task type, the seeds together."""
    won: dict[str, list[float]] = {}
    for shown in reports:
        for outcome in shown["outcomes"]:
            won.setdefault(outcome["kind"], []).append(float(outcome["success"]))
    return {kind: float(np.mean(x)) for kind, x in sorted(won.items())}


def successes(shown: dict[str, Any]) -> np.ndarray:
    """[games] 1 for success, in panel order."""
    return np.array([float(o["success"]) for o in shown["outcomes"]])


def rates(by_seed: dict[int, np.ndarray]) -> dict[str, Any]:
    """Success by seed, and the Wilson interval of all seeds together."""
    total = np.concatenate(list(by_seed.values()))
    return {"by_seed": {s: float(x.mean()) for s, x in by_seed.items()}, "interval": [*wilson(total.sum(), len(total))]}


def difference(a: dict[int, np.ndarray], b: dict[int, np.ndarray]) -> dict[str, Any]:
    """Paired difference a - b on the seeds that both have; the interval resamples seeds and games."""
    x, y = (np.stack([side[s] for s in a if s in b]) for side in (a, b))  # [seeds, games]
    by_seed = {s: float(a[s].mean() - b[s].mean()) for s in a if s in b}
    return {"by_seed": by_seed, "mean": float((x - y).mean()), "interval": [*paired_bootstrap(x, y)]}


def table(result: dict[str, Any]) -> str:
    """The result as text, in percent per seed."""
    lines = [f"{result['benchmark']}, panel {result['panel']}, {result['games']} games, seeds {result['seeds']}"]
    for role, shown in {"demonstrator": result["demonstrator"], **result["beside"]}.items():
        score = f", score {100 * shown['score']:.1f}" if "score" in shown else ""
        lines.append(f"{role} {shown['policy']}: {shown['success']:.1%}{score}")
    for mode in MODES:
        part = result[mode]
        stages = [name for name in ("clone", "control", "grpo", "rl") if name in part]
        lines += [f"{mode:8} {name:26} {spread(part[name]['by_seed'])}" for name in stages]
        lines += [line(mode, name, d) for name, d in part["differences"].items()]
        for name, by_seed in part.get("score", {}).get("by_seed", {}).items():
            lines.append(f"{mode:8} {'score ' + name:26} {spread(by_seed)}")
        lines += [line(mode, f"score {name}", d) for name, d in part.get("score", {}).get("differences", {}).items()]
        for name, x in part["per_type"].items():
            lines.append(f"{mode:8} {name:26} " + "  ".join(f"{kind} {rate:.0%}" for kind, rate in x.items()))
    return "\n".join(lines)


def spread(by_seed: dict[int, float], sign: str = "") -> str:
    """Percent of each seed."""
    return " ".join(f"{s}: {x:{sign}6.1%}" for s, x in by_seed.items())


def line(mode: str, name: str, d: dict[str, Any]) -> str:
    """A difference with its interval."""
    low, high = d["interval"]
    return f"{mode:8} {name:26} {spread(d['by_seed'], '+')}   mean {d['mean']:+.1%} [{low:+.1%}, {high:+.1%}]"


if __name__ == "__main__":
    main()
