"""How far one driver process reaches: CPU seconds per step at 10,000 episodes at once, and the bytes of an iteration.

    python benchmarks/scale.py [--episodes 1000 10000] [--json FILE]

The real rollouts (`agentrl.run.Rollouts`: prompts, tokens, parsing, environments, records, the step graph, the sampler)
play one batch with every episode at once. The engine takes time and computes nothing, and waiting is skipped
(`benchmarks/stand_ins.py`), so the CPU seconds are the driver's own; those of the stand-in are subtracted. Every prompt
is encoded and every observation has 40 words; environments that compute more cost more.

Bytes are arithmetic: measured sizes per step of a graph's columns and tokens and of JSON requests of token ids to an
engine over HTTP, and the weights in bfloat16 for every engine that loads them.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from stand_ins import Times, open_stand_in, recipe

from agentrl.graph import StepGraph, write_graph
from agentrl.rollout import build_graph

COPIES = 8
TIMES = Times(token_s=0.025, tool_s=0.2, spread=0.6, most_turns=30, slots=10_000)
PARAMETERS = {"1.5B": 1.54e9, "7B": 7.62e9, "70B": 70.6e9}  # Qwen2.5-1.5B, Qwen2.5-7B, Llama-3-70B
ADAPTER = {"1.5B": 18.5e6, "7B": 40.4e6, "70B": 207e6}  # LoRA of rank 16 on all linear layers
EPISODES, ENGINES = 1024, 8  # of an iteration in the table of bytes


def drive(episodes: int, provision: float = 1.0) -> dict[str, Any]:
    """One batch of `episodes` chains at once, of which it takes those that finish first if `provision` is above 1."""
    with tempfile.TemporaryDirectory() as folder:
        tables = {
            "run": {"iterations": 1},
            "batch": {"tasks": round(episodes / provision) // COPIES, "copies": COPIES},
            "rollout": {"name": "chain", "provision": provision},
        }
        run = open_stand_in(recipe(Path(folder), "scale", tables), TIMES)
        engine = run.rollouts.inference.engines[run.rollouts.main.policy]
        cpu = time.process_time()
        batch = run.rollouts.batch(0, pauses=True)
        cpu = time.process_time() - cpu
        again = time.process_time()
        build_graph(batch.records)
        graph_s = time.process_time() - again
        path = Path(folder) / "graph.safetensors"
        write_graph(batch.graph, path)
        stored = path.stat().st_size
        run.close()
    steps, rows = engine.answers, len(batch.graph)
    return {
        "at_once": episodes,
        "provision": provision,
        "episodes": len(batch.records),
        "steps": steps,
        "prompt_tokens_per_step": float(np.mean([len(s.added) for r in batch.records for s in r.steps])),
        "driver_ms_per_step": 1e3 * (cpu - engine.own_cpu_s) / steps,
        "stand_in_ms_per_step": 1e3 * engine.own_cpu_s / steps,
        "graph_ms_per_step": 1e3 * graph_s / rows,
        "steps_per_s": steps / (cpu - engine.own_cpu_s),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "graph_bytes_per_step": memory_of(batch.graph) / rows,
        "stored_bytes_per_step": stored / rows,
        "request_bytes_per_step": request_bytes(batch.graph),
    }


def memory_of(graph: StepGraph) -> int:
    """Bytes of the columns and tokens."""
    tokens = [getattr(graph.tokens, f.name) for f in fields(graph.tokens) if f.name != "columns"]
    return sum(x.nbytes for x in [*graph.columns.values(), *tokens])


def request_bytes(graph: StepGraph, most: int = 200) -> float:
    """Mean bytes per step of a JSON request with the whole prompt's ids, and of its answer with ids and log-probs."""
    tokens, total = graph.tokens, 0
    rows = np.linspace(0, len(graph) - 1, min(most, len(graph))).astype(int)
    for row in rows:
        path, own = tokens.path(row), slice(tokens.offsets[row], tokens.offsets[row + 1])
        sampled = tokens.sampled[own]
        prompt = path[: len(path) - int(sampled.sum())]
        answer = {"token_ids": tokens.ids[own][sampled].tolist(), "logprobs": tokens.logprobs[own][sampled].tolist()}
        total += len(json.dumps({"token_ids": prompt.tolist()})) + len(json.dumps(answer))
    return total / len(rows)


def moved(one: dict[str, Any]) -> list[dict[str, Any]]:
    """Bytes of an iteration of EPISODES episodes with ENGINES engines, by size of the model."""
    steps = EPISODES * one["steps"] / one["episodes"]
    return [
        {
            "model": name,
            "weights_gb": ENGINES * 2 * count / 1e9,
            "adapter_gb": ENGINES * 2 * ADAPTER[name] / 1e9,
            "graph_gb": steps * one["graph_bytes_per_step"] / 1e9,
            "requests_gb": steps * one["request_bytes_per_step"] / 1e9,
        }
        for name, count in PARAMETERS.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    drive(64)  # imports, caches
    cases = [(count, 1.0) for count in given.episodes] + [(given.episodes[-1], 1.25)]
    results = [drive(*case) for case in cases]
    for one in results:
        print(
            f"{one['at_once']:6} episodes at once, provision {one['provision']:g}, {one['steps']} steps: "
            f"{one['driver_ms_per_step']:.3f} ms of CPU per step (graph {one['graph_ms_per_step']:.3f}), "
            f"{one['steps_per_s']:.0f} steps per CPU second, {one['peak_mib']:.0f} MiB; per step "
            f"{one['graph_bytes_per_step']:.0f} bytes of graph, {one['request_bytes_per_step']:.0f} of requests",
            flush=True,
        )
    table = moved(results[len(given.episodes) - 1])
    for row in table:
        print(
            f"{row['model']:>5}: weights {row['weights_gb']:.1f} GB to {ENGINES} engines (LoRA "
            f"{row['adapter_gb']:.2f}), graph {row['graph_gb']:.3f} GB, requests {row['requests_gb']:.3f} GB"
        )
    if given.json:
        given.json.write_text(json.dumps({"driver": results, "bytes": table}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
