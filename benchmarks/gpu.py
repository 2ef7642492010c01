"""Measures the code that runs only on a GPU, on a machine with an NVIDIA GPU: one JSON in ten minutes.

    python benchmarks/gpu.py [--out gpu.json] [--minutes 10] [--part tests|attention|update|rollout|memory ...]

`make gpu` calls it. It runs the tests marked `gpu`, then four measurements with random weights, so nothing is
downloaded. Each prints a ratio or a bound from the same run:

    attention  FlexAttention over a packed tree, forward and backward, against causal SDPA over the tree's paths
    update     tokens per second of the policy update, and the share of the bound that its matrix products set
    rollout    tokens per second of the embedded engine, against `transformers.generate` with the whole history per turn
    memory     `agentrl train --dry-run --memory`'s forecast against `torch.cuda.max_memory_allocated`

A part that fails, or that has no time left, is named in the JSON, and the exit code is 1. Without a GPU the exit code
is 2.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, Qwen2Config

from agentrl.config import resolve
from agentrl.credit import Credit
from agentrl.loss import Loss
from agentrl.model import Network
from agentrl.model.layout import Layout
from agentrl.model.tree_attention import make_plan, tree_attention
from agentrl.trainer import Learner, LearnerConfig, OptimConfig, UpdateConfig, memory, update

ROOT = Path(__file__).parents[1]
PARTS = ("tests", "attention", "update", "rollout", "memory")
GIB = 2**30


def seconds(device: torch.device, run: Callable[[], object], repeats: int = 3) -> float:
    """The best time of some repeats after a warm-up."""
    best = float("inf")
    for repeat in range(repeats + 1):
        synchronise(device)
        start = time.perf_counter()
        run()
        synchronise(device)
        if repeat:
            best = min(best, time.perf_counter() - start)
    return best


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def model_of(width: int, layers: int, dtype: torch.dtype, device: torch.device) -> Any:
    """A Qwen2-type model with random weights."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=32000,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=max(1, width // 128),
        num_key_value_heads=max(1, width // 256),
        max_position_embeddings=32768,
        tie_word_embeddings=True,
    )
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


def learner_of(model: Any, **options: Any) -> Learner:
    """A learner of the model, whose layers are plain causal attention."""
    loaded: Any = SimpleNamespace(model=model, tokenizer=None)
    return Learner(loaded, OptimConfig(), known=Network(model=model, sharing="tree"), config=LearnerConfig(**options))


def tree(root: int, branches: int, length: int) -> Layout:
    """One prompt of `root` tokens with `branches` answers of `length` tokens."""
    start = root + length * np.arange(branches)
    position = np.concatenate([np.arange(root), np.tile(root + np.arange(length), branches)])
    above = np.arange(-1, root + branches * length - 1)
    above[start] = root - 1
    end = np.concatenate([np.full(root, root + branches * length), np.repeat(start + length, length)])
    return Layout(source=np.arange(len(position)), position=position, predictor=above, subtree_end=end)


def attention(device: torch.device, *, root: int = 4096, branches: int = 8, length: int = 512) -> dict[str, Any]:
    """Attention over a tree against SDPA over its paths, forward and backward, with the same heads."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    layout, heads, width = tree(root, branches, length), 16, 64
    plan = make_plan(layout, device)
    packed = [torch.randn(1, heads, len(layout), width, device=device, dtype=dtype, requires_grad=True) for _ in "qkv"]
    alone = [
        torch.randn(branches, heads, root + length, width, device=device, dtype=dtype, requires_grad=True)
        for _ in "qkv"
    ]
    module = torch.nn.Identity()

    def over_tree() -> None:
        tree_attention(module, *packed, None, tree_plan=plan)[0].sum().backward()

    def over_paths() -> None:
        F.scaled_dot_product_attention(*alone, is_causal=True).sum().backward()

    ours, peer = seconds(device, over_tree), seconds(device, over_paths)
    return {"tree_s": ours, "paths_s": peer, "ratio": peer / ours, "packed_tokens": len(layout)}


def step_of(learner: Learner, tokens: int, longest: int) -> Callable[[], object]:
    """One update on one micro-batch of `tokens` packed tokens."""
    graph = memory.episodes(tokens, learner.network.config.vocab_size, longest)
    credit = Credit.of(np.random.default_rng(0).normal(size=len(graph)))
    config, loss = UpdateConfig(max_tokens=tokens), resolve(Loss, {"name": "ppo_clip"})
    return lambda: update(learner, graph, credit, config, loss, temperature=1.0)


def updating(device: torch.device, *, width: int = 1024, layers: int = 24, tokens: int = 16384) -> dict[str, Any]:
    """Tokens per second of the update, and the time that its matrix products alone would take."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    learner = learner_of(model_of(width, layers, dtype, device))
    took = seconds(device, step_of(learner, tokens, min(tokens, 4096)), repeats=2)
    a, b = (
        torch.randn(tokens, width, device=device, dtype=dtype),
        torch.randn(width, 4 * width, device=device, dtype=dtype),
    )
    speed = 2 * tokens * width * 4 * width / seconds(device, lambda: a @ b)  # operations per second
    weights = sum(p.numel() for layer in learner.model.get_decoder().layers for p in layer.parameters())
    bound = 6 * weights * tokens / speed
    return {"update_s": took, "tokens_per_s": tokens / took, "bound_s": bound, "share_of_bound": bound / took}


def rollout(device: torch.device, *, trajectories: int = 64) -> dict[str, Any]:
    """The load of benchmarks/rollout.py on the device, by the clock."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import rollout as load_of

    from agentrl.engines import HfEngine, Sampling

    model = load_of.make_model().to(device)
    load = load_of.Load(trajectories=trajectories, turns=4, prompt=128, observation=32, answer=16)
    engine = HfEngine(
        model, load_of.Numbers(), Sampling(temperature=0.0), max_slots=trajectories, max_context=2048, end_ids=()
    )

    def ours() -> None:
        engine.clear()
        load_of.run_engine(engine, load)

    fast = seconds(device, ours, repeats=2)
    slow = seconds(device, lambda: load_of.run_generate(model, load), repeats=1)
    wanted = trajectories * load.turns * load.answer
    return {"engine_tokens_per_s": wanted / fast, "generate_tokens_per_s": wanted / slow, "ratio": slow / fast}


def forecast(device: torch.device, *, width: int = 1024, layers: int = 24, tokens: int = 16384) -> dict[str, Any]:
    """The forecast of two updates against what the device's allocator held at most, with and without checkpointing."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    dtype, found = torch.bfloat16 if device.type == "cuda" else torch.float32, {}
    loss, config = resolve(Loss, {"name": "ppo_clip"}), UpdateConfig(max_tokens=tokens)
    for checkpointing in (False, True):
        graph = memory.episodes(tokens, 32000, min(tokens, 4096))
        empty = model_of(width, layers, dtype, torch.device("meta"))
        section = LearnerConfig(checkpointing=checkpointing)
        with FakeTensorMode(allow_non_fake_inputs=True):
            need = memory.measured(memory.without_values(empty), graph, config, loss, section, False)
        told: dict[str, float] = {"forecast_gib": need.peak / GIB}
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            learner = learner_of(model_of(width, layers, dtype, device), checkpointing=checkpointing)
            run = step_of(learner, tokens, min(tokens, 4096))
            run()
            run()
            told["allocated_gib"] = (torch.cuda.max_memory_allocated() - before) / GIB
            told["reserved_gib"] = torch.cuda.max_memory_reserved() / GIB
            told["ratio"] = told["allocated_gib"] / told["forecast_gib"]
            del learner, run
        found["checkpointing" if checkpointing else "plain"] = told
    return found


def tests(device: torch.device, *, limit_s: float = 300.0) -> dict[str, Any]:
    """The tests marked gpu."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-rA", "-p", "no:cacheprovider", *map(str, marked())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("PASSED", "FAILED", "ERROR", "SKIPPED"))]
    if done.returncode:
        raise RuntimeError(f"pytest ended with {done.returncode}: {' | '.join(lines[-8:]) or done.stdout[-800:]}")
    return {"lines": lines}


def marked() -> list[Path]:
    """The files that have tests marked gpu; the others import packages that a machine with a GPU need not have."""
    return sorted(path for path in (ROOT / "tests").rglob("test_*.py") if "mark.gpu" in path.read_text())


MEASURE: dict[str, Callable[..., dict[str, Any]]] = {
    "tests": tests,
    "attention": attention,
    "update": updating,
    "rollout": rollout,
    "memory": forecast,
}


def run(device: torch.device, parts: list[str], minutes: float) -> dict[str, Any]:
    """Every part that there is time for; a part that fails is named, and the next part follows."""
    end, result = time.monotonic() + 60 * minutes, dict[str, Any]()
    for part in parts:
        left = end - time.monotonic()
        if left <= 0:
            result[part] = {"failed": f"no time was left of {minutes:g} minutes"}
            continue
        start = time.monotonic()
        try:
            options = {"limit_s": left} if part == "tests" else {}
            result[part] = MEASURE[part](device, **options)
        except Exception as error:  # noqa: BLE001  the next part may still say something
            result[part] = {"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:800]}"}
        result[part]["seconds"] = time.monotonic() - start
        print(part, json.dumps(result[part]), flush=True)
    return result


def main() -> int:
    """Print each part, and write one JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--part", action="append", choices=PARTS)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("make gpu: torch finds no CUDA device here; run it on a machine with an NVIDIA GPU", file=sys.stderr)
        return 2
    result = run(torch.device("cuda"), given.part or list(PARTS), given.minutes)
    about = {"device": torch.cuda.get_device_name(0), "torch": torch.__version__, "cuda": torch.version.cuda}
    given.out.write_text(json.dumps({**about, **result}, indent=1))
    failed = [part for part, told in result.items() if "failed" in told]
    print(
        f"{given.out}: {len(result) - len(failed)} of {len(result)} parts" + (f", failed: {failed}" if failed else "")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
