"""One recipe, trained with rollouts from the embedded engine and from a vLLM server on the same CPUs: curves and costs.

    python benchmarks/served.py --vllm-python .venv-vllm/bin/python --iterations 30 --runs runs/served

Both runs begin with the same cloning (same seed, same bytes). Both can be stopped and started again, and a finished run
is only read. The runs are compared over the iterations that both have. `--only hf` or `vllm`
runs one, `--only none` reads what is there. CPU seconds of the vLLM run are those of agentrl (`timings.jsonl`), and
those of its server, which this script reads from the system while the run goes on.
"""

import argparse
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

RECIPE = "alfworld-cpu"
COMMON = ["run.checkpoint_every=5", "run.deterministic=false", "eval.every=10", "eval.tasks=100", "eval.during=100",
          "eval.modes=['greedy']", "log.picture=false", "optim.schedule=constant"]  # fmt: skip
LOOK_S = 5.0


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-python", default=".venv-vllm/bin/python")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--runs", type=Path, default=Path("runs/served"))
    parser.add_argument("--only", choices=["hf", "vllm", "none"])
    parser.add_argument("--first", type=int, default=0, help="first iteration whose costs count")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    engines = {
        "hf": "engine={name='hf', actions='admissible', max_slots=256, max_context=768}",
        "vllm": "engine={name='vllm', device='cpu', actions='admissible', max_context=768, "
        f"options={{max_num_seqs=128}}, python='{arguments.vllm_python}', "
        "environment={HF_HUB_OFFLINE='1', VLLM_LOGGING_LEVEL='WARNING'}}",
    }
    for name, engine in engines.items():
        if arguments.only in (None, name):
            play(arguments.runs, name, engine, arguments.iterations)
    found = {name: measured(arguments.runs / name) for name in engines}
    report(found, arguments.first)
    if arguments.json:
        arguments.json.write_text(json.dumps({"recipe": RECIPE, "options": COMMON, **found}, indent=1) + "\n")


def play(runs: Path, name: str, engine: str, iterations: int) -> None:
    """Train; meanwhile write what the server has used to `server_cpu.jsonl` in the run's folder."""
    folder = runs / name
    words = [f"run.folder={runs}", f"run.name={name}", f"run.iterations={iterations}", engine, *COMMON, "--resume"]
    process = subprocess.Popen([sys.executable, "-m", "agentrl", "train", RECIPE, *words])
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_S):
            used = server_cpu(process.pid)
            if used and (folder / "metrics.jsonl").is_file():
                with (folder / "server_cpu.jsonl").open("a") as file:
                    file.write(json.dumps({"iterations": len(rows(folder, "train")), "cpu_s": used}) + "\n")

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    code = process.wait()
    over.set()
    watching.join()
    if code:
        sys.exit(f"the run {folder} ended with exit code {code}")


def server_cpu(process: int) -> float:
    """CPU seconds of all descendants of a process."""
    total, todo = 0.0, children(process)
    while todo:
        one = todo.pop()
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += (int(fields[11]) + int(fields[12])) / 100
        todo += children(one)
    return total


def children(process: int) -> list[int]:
    """The child processes of a process."""
    try:
        return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def rows(folder: Path, stage: str, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """The lines of one stage."""
    found = [json.loads(line) for line in (folder / name).read_text().splitlines()]
    return [row for row in found if row["stage"] == stage]


def measured(folder: Path) -> dict[str, Any]:
    """Curve and costs of one run."""
    training, timings = rows(folder, "train"), rows(folder, "train", "timings.jsonl")
    server = [json.loads(line) for line in (folder / "server_cpu.jsonl").open()] if (
        folder / "server_cpu.jsonl").is_file() else []  # fmt: skip
    return {
        "success": [round(row["success"], 4) for row in training],
        "tokens": [row["generated_tokens"] for row in training],
        "rollout_cpu_s": [round(row["rollout_cpu_s"], 3) for row in timings],
        "update_cpu_s": [round(row["update_cpu_s"], 3) for row in timings],
        "held_out": {row["name"]: [row["success_rate"], row["interval"]] for row in rows(folder, "eval")},
        "server_cpu_s": server_cost(server),
    }


def server_cost(samples: list[dict[str, float]]) -> float | None:
    """Mean CPU seconds of the server per iteration, between the first and the last iteration seen.

    Evaluations in between are not taken out, so this is an upper bound.
    """
    firsts: dict[int, float] = {}
    for sample in samples:
        firsts.setdefault(int(sample["iterations"]), sample["cpu_s"])
    if len(firsts) < 2:
        return None
    low, high = min(firsts), max(firsts)
    return (firsts[high] - firsts[low]) / (high - low)


def report(found: dict[str, dict[str, Any]], first: int) -> None:
    """Print both curves, and what an iteration costs."""
    both = min(len(one["success"]) for one in found.values())
    print(f"{'iteration':>9} " + " ".join(f"{name:>6}" for name in found) + "   success of training rollouts")
    for iteration in range(both):
        print(f"{iteration:>9} " + " ".join(f"{one['success'][iteration]:6.2f}" for one in found.values()))
    costs = {}
    for name, one in found.items():
        own = sum(one["rollout_cpu_s"][first:both]) / max(1, both - first)
        costs[name] = own + (one["server_cpu_s"] or 0.0)
        tokens = sum(one["tokens"][first:both]) / max(1, both - first)
        print(f"{name}: held out {one['held_out']}")
        servers = one["server_cpu_s"] or 0.0
        print(
            f"{name}: rollouts {own:.2f} CPU s of agentrl per iteration, {servers:.2f} of servers; "
            f"{tokens / costs[name]:.0f} tokens per CPU second"
        )
    ratio = costs["vllm"] / costs["hf"]
    print(f"vllm takes {ratio:.1f}x the CPU seconds of hf for rollouts of iterations {first} to {both - 1}")


if __name__ == "__main__":
    main()
