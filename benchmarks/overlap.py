"""How busy engine and learner are with playing ahead, provision and kept groups, if episodes are long and tools slow.

    python benchmarks/overlap.py [--iterations 30] [--json FILE]

The real training loops (`agentrl.run`) drive an engine and a learner that only take time (`benchmarks/stand_ins.py`):
16 groups of 4 episodes per update, lengths log-normal (median 6 turns, sigma 0.6, at most 30), 64 tokens per answer, a
tool call after each turn (0.2 s at least, with a Pareto tail of exponent 1.5), 25 ms per token, an update of 30 s.
Waiting is skipped on a clock of its own, so the figures do not depend on the machine. For the engine, busy is the mean
share of its 64 slots that generate; for the learner it is the share of time in updates; both over the whole run. The
bias of `provision` shows in the mean number of turns of the trained episodes, beside that of the plain loop.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from stand_ins import Times, open_stand_in, recipe

from agentrl.train import reinforce
from agentrl.train_ahead import reinforce_ahead

TIMES = Times(token_s=0.025, spread=0.6, most_turns=30, tool_s=0.2, update_s=30.0)
KEEP = {"name": "chain", "provision": 1.5, "leftover": "keep"}
CONFIGURATIONS: dict[str, dict[str, dict[str, Any]]] = {
    "plain": {},
    "provision 1.5, cancel": {"rollout": {"name": "chain", "provision": 1.5}},
    "provision 1.5, keep, staleness 3": {"run": {"staleness": 3, "ahead": 0}, "rollout": KEEP},
    "ahead 1": {"run": {"staleness": 1}},
    "ahead 2": {"run": {"staleness": 2}},
    "ahead 1, provision 1.5, keep, staleness 4": {"run": {"staleness": 4, "ahead": 1}, "rollout": KEEP},
}


def measure(name: str, tables: dict[str, dict[str, Any]], iterations: int) -> dict[str, Any]:
    """One configuration, from its first rollout to its last update."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"run": {"iterations": iterations, **tables.get("run", {})}, "batch": {"tasks": 16, "copies": 4}}
        settings = recipe(Path(folder), "overlap", {**tables, **options})
        run = open_stand_in(settings, TIMES)
        engine = run.rollouts.inference.engines[run.rollouts.main.policy]
        cpu = time.process_time()
        (reinforce_ahead if settings.tables.run.lead else reinforce)(run)
        wall, cpu = run.rollouts.now, time.process_time() - cpu
        rows = [json.loads(line) for line in run.folder.metrics.read_text().splitlines()]
        run.close()
    trained = sum(row["episodes"] for row in rows)
    return {
        "configuration": name,
        "wall_s": wall,
        "driver_cpu_s": cpu,
        "episodes_per_s": trained / wall,
        "engine_busy": engine.busy_s / wall / TIMES.slots,
        "learner_busy": TIMES.update_s * iterations / wall,
        "turns": float(np.mean([row["steps"] for row in rows])),
        "left_turns": float(np.mean([row.get("left_steps", 0.0) for row in rows])),
        "staleness_mean": float(np.mean([row.get("staleness_mean", 0.0) for row in rows])),
        "staleness_max": max(row.get("staleness_max", 0.0) for row in rows),
        "stale_share": sum(row.get("groups_stale", 0) for row in rows) / (16 * iterations),
        "cancelled_token_share": sum(row.get("cancelled_tokens", 0.0) for row in rows)
        / sum(row["generated_tokens"] for row in rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results = []
    for name, tables in CONFIGURATIONS.items():
        one = measure(name, tables, given.iterations)
        one["ratio"] = one["episodes_per_s"] / results[0]["episodes_per_s"] if results else 1.0
        results.append(one)
        print(
            f"{name:42} {one['wall_s']:6.1f} s  {one['ratio']:.2f}x  engine {one['engine_busy']:5.1%}  learner "
            f"{one['learner_busy']:5.1%}  turns {one['turns']:.2f} (left {one['left_turns']:.1f})  age "
            f"{one['staleness_mean']:.2f} (max {one['staleness_max']:.0f})  stale {one['stale_share']:.1%}  cancelled "
            f"{one['cancelled_token_share']:.1%}",
            flush=True,
        )
    if given.json:
        given.json.write_text(json.dumps({"iterations": given.iterations, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
