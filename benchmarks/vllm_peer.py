"""vLLM on the CPU as a peer of the embedded engine: the same load through agentrl's own vLLM engine (see rollout.py).

The server has one thread. CPU seconds are those of this process and of all processes that it started; starting the
server and loading weights are not counted. Every repeat has a new version of the weights, so that no repeat finds the
prefixes of an earlier one in the server's cache.
"""

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from agentrl.engines import Sampling, Serving, vllm as entry

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


def measure(
    model: Any,
    tokenizer: Any,
    python: Path,
    play: Callable[[Any, Any], list[Any]],
    sets: Any,
    *,
    context: int,
    slots: int,
    repeats: int,
) -> dict[str, Any]:
    """Tokens per CPU second of vLLM in free greedy decoding and, with `sets`, among listed answers that are sampled.

    Args:
        model: the model of the embedded engine.
        tokenizer: the model's tokenizer, which the server loads with the weights.
        python: interpreter of the environment that has vLLM.
        play: plays the load with an engine, and with listed answers or None; returns the answers of each trajectory.
        sets: the listed answers, or None.
        context: largest number of tokens of prompt and answer together.
        slots: trajectories at a time.
        repeats: measured rounds after one warm-up; the best counts.

    Raises:
        ValueError: the server cannot be started.
    """
    with tempfile.TemporaryDirectory() as weights:
        config = entry.Config(
            python=str(python),
            device="cpu",
            max_context=context,
            folder=weights,
            options={"max_num_seqs": slots},
            environment={"HF_HUB_OFFLINE": "1"},
        )
        began = time.monotonic()
        serving = Serving(model=model, tokenizer=tokenizer, sampling=Sampling(temperature=0.0))
        free = entry.make(config, serving)
        found = {"vllm_start_s": round(time.monotonic() - began, 1)}
        try:
            free.end_ids = []
            sampled = Serving(model=model, tokenizer=tokenizer, sampling=Sampling(), beside=free)
            listed = entry.make(config.model_copy(update={"actions": "admissible"}), sampled)
            for prefix, engine, choices in (("vllm", free, None), ("vllm_choices", listed, sets)):
                if engine is free or choices is not None:
                    best, answers = _best(partial(play, engine, choices), free, model, repeats)
                    tokens = sum(len(ids) for path in answers for ids in path)
                    found |= {
                        f"{prefix}_tokens": tokens,
                        f"{prefix}_cpu_s": round(best, 3),
                        f"{prefix}_tokens_per_cpu_s": round(tokens / best, 1),
                    }
        finally:
            free.close()
    return found


def _best(play: Callable[[], list[Any]], engine: Any, model: Any, repeats: int) -> tuple[float, list[Any]]:
    """CPU seconds of the best of the repeats after one warm-up, and the answers of the last."""
    times: list[float] = []
    for _ in range(repeats + 1):
        engine.load(model, engine.version + 1)
        before = family_seconds()
        answers = play()
        times.append(family_seconds() - before)
    return min(times[1:]), answers


def family_seconds() -> float:
    """CPU seconds of this process and of all its living descendants, user and system (Linux only)."""
    parents, seconds = {}, {}
    for path in PROC.iterdir():
        if path.name.isdigit():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # the process has ended
                continue
            parents[int(path.name)] = int(fields[1])
            seconds[int(path.name)] = (int(fields[11]) + int(fields[12])) / TICKS
    family, grown = {os.getpid()}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        family, grown = family | more, bool(more)
    return sum(seconds[pid] for pid in family if pid in seconds)
