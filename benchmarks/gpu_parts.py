"""The eight parts of the run on a GPU (`benchmarks/gpu_run.py`). Each yields the name and the value of a measurement.

Letters: B rows that are generated at once, C tokens of context per row, V vocabulary.
"""

import copy
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
import transformers
from torch.profiler import ProfilerActivity
from transformers import AutoModelForCausalLM, Qwen3Config, StaticCache

from agentrl.config import resolve
from agentrl.credit import Credit
from agentrl.engines import Sampling
from agentrl.engines.distribution import draw_each
from agentrl.engines.hf.forwards import Chunk, PackedRunner
from agentrl.graph import StepGraph
from agentrl.loss import Loss
from agentrl.model import Network, network
from agentrl.model.logprobs import CHUNK, token_stats
from agentrl.run import read_metrics
from agentrl.trainer import Learner, LearnerConfig, OptimConfig, UpdateConfig, forecast_update, logprobs, memory, update
from agentrl.trainer.learner import StepReport
from benchmarks.gpu_processes import GRACE_S, ROOT, Ended, finished

GIB = 2**30
BANDWIDTH = 4.3e12  # bytes per second that a copy on an H200 reads and writes; the bound of a decoding step
KEPT = ("step", "success", "loss", "grad_norm", "clip_fraction", "approx_kl", "entropy")
Measured = Iterator[tuple[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a part is run with.

    Attributes:
        device: cuda or cpu.
        tiny: measure at sizes for a CPU?
        limit_s: seconds that the part has.
        out: folder for files.
    """

    device: str
    tiny: bool
    limit_s: float
    out: Path

    @property
    def on_gpu(self) -> bool:
        """Is the device a GPU?"""
        return self.device == "cuda"


class Shape(NamedTuple):
    """The shape of a model; the defaults are those of a model that a CPU computes as well."""

    hidden: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    width: int = 64
    vocabulary: int = 512
    intermediate: int = 512


FULL = Shape(2048, 28, 16, 8, 128, 151936, 6144)  # Qwen3-1.7B
TINY = Shape(64, 2, 2, 1, 32, 1024, 128)


def smoke(setting: Setting) -> Measured:
    """Versions, ceilings, launch time; `sharing` "paths" means that FlexAttention did not run, and all is void."""
    yield "torch", torch.__version__
    yield "transformers", transformers.__version__
    yield "python", sys.version.split()[0]
    if setting.on_gpu:
        about = torch.cuda.get_device_properties(0)
        yield "name", about.name
        yield "cuda", torch.version.cuda
        yield "capability", [about.major, about.minor]
        yield "gib", about.total_memory / GIB
        source = torch.empty(2**31, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        yield "copy_tb_s", 2 * len(source) / seconds(lambda: target.copy_(source), setting) / 1e12
        square = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        yield "bf16_tflops", 2 * 8192**3 / seconds(lambda: square @ square, setting) / 1e12
        one, launches = torch.empty(1, device="cuda"), 2000
        yield "launch_us", seconds(lambda: [one.add_(1) for _ in range(launches)], setting) / launches * 1e6
    for dtype in (torch.float32, torch.bfloat16):
        start = time.perf_counter()
        found = network(model_of(Shape(layers=2), dtype, setting.device))
        yield f"sharing_{name_of(dtype)}", [found.sharing, found.reason, time.perf_counter() - start]


def equal(setting: Setting) -> Measured:
    """Log-probs and gradients, as a tree and as paths, against those of the CPU in float32."""
    from tests.graph.graphs import trees

    base, rng = model_of(Shape(), torch.float32, "cpu"), np.random.default_rng(1)
    graph = trees(3, roots=2 if setting.tiny else 12, size=8 if setting.tiny else 24)  # branches; ids below 23
    assert graph.tokens is not None
    noise = {name: -6.0 + rng.normal(0, 0.3, len(graph.tokens.ids)) for name in ("old_logprob", "ref_logprob")}
    graph = graph.with_token_columns(**noise)
    wanted = read(Network(model=copy.deepcopy(base), sharing="tree"), graph)
    seen = np.isfinite(wanted.logprobs)
    for dtype in (torch.float32, torch.bfloat16):
        for sharing in ("tree", "paths"):
            model = copy.deepcopy(base).to(setting.device, dtype)

            def differences(model: Any = model, sharing: Any = sharing) -> dict[str, float]:
                found = read(Network(model=model, sharing=sharing), graph)
                apart = np.abs(found.logprobs - wanted.logprobs)[seen]
                a, b = found.gradient, wanted.gradient
                return {
                    "logprob_max": float(apart.max()),
                    "logprob_mean": float(apart.mean()),
                    "gradient_relative": float((a - b).norm() / b.norm()),
                    "gradient_cosine": float((a @ b) / a.norm() / b.norm()),
                }

            yield f"{name_of(dtype)}_{sharing}", tried(differences)


def updating(setting: Setting) -> Measured:
    """An update of 16k packed tokens with checkpointing, with the head in chunks of two sizes; forecast; optimiser."""
    shape, tokens = (TINY, 512) if setting.tiny else (FULL, 16384)
    longest = min(tokens, 4096)
    model = model_of(shape, torch.bfloat16, setting.device)
    parameters = sum(p.numel() for p in model.parameters())
    yield "parameters", parameters
    learner = learner_of(model, checkpointing=True)
    for name, size in (("head_chunk", CHUNK), ("head_chunk_x16", 16 * CHUNK)):
        with patch.dict(token_stats.__kwdefaults__, chunk=size):
            yield name, tried(lambda: update_figures(setting, learner, parameters, tokens, longest))

    def optimiser_step() -> None:
        for parameter in learner.trained:
            parameter.grad = torch.zeros_like(parameter)
        learner.step()

    yield "optimiser_step_s", seconds(optimiser_step, setting, 2)
    section, config = LearnerConfig(checkpointing=True), UpdateConfig(max_tokens=tokens)
    empty = model_of(shape, torch.bfloat16, "meta")
    need = forecast_update(empty, tokens, longest, config, resolve(Loss, {"name": "ppo_clip"}), section, False)
    yield "forecast_gib", need.peak / GIB  # compare with peak_gib of head_chunk


def update_figures(
    setting: Setting, learner: Learner, parameters: int, tokens: int, longest: int
) -> dict[str, float | None]:
    """Time, speed and peak memory of an update."""
    step = step_of(learner, tokens, longest)
    if setting.on_gpu:
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    step()
    synchronise(setting)
    first = time.perf_counter() - start
    took = seconds(step, setting, 2)
    return {
        "first_s": first,
        "s": took,
        "tokens_per_s": tokens / took,
        "tflops": 8 * parameters * tokens / took / 1e12,  # with the second forward pass of checkpointing
        "model_tflops": 6 * parameters * tokens / took / 1e12,
        "peak_gib": torch.cuda.max_memory_allocated() / GIB if setting.on_gpu else None,
        "reserved_gib": torch.cuda.max_memory_reserved() / GIB if setting.on_gpu else None,
    }


def decode(setting: Setting) -> Measured:
    """The embedded engine's step: forward pass and sampler, their bound, and three ways that transformers offers."""
    shape, rows, context, steps = (TINY, 4, 40, 4) if setting.tiny else (FULL, 64, 1000, 24)
    model, rng = model_of(shape, torch.bfloat16, setting.device), np.random.default_rng(0)
    runner = PackedRunner(model, rows, 2 * context)
    for at in range(0, rows, 8):
        runner.forward([Chunk(b, 0, rng.integers(0, shape.vocabulary, context)) for b in range(at, min(rows, at + 8))])

    def forward() -> torch.Tensor:
        for i in range(steps):
            chunks = [Chunk(b, context + i, rng.integers(0, shape.vocabulary, 1)) for b in range(rows)]
            logits = runner.forward(chunks)
        return logits

    logits = forward()
    took = seconds(forward, setting) / steps
    yield "forward_ms", took * 1e3
    free = [None] * rows
    drawing = seconds(lambda: draw_each(logits, Sampling(), rng.random(rows), free, free), setting)
    yield "sampler_ms", drawing * 1e3
    yield "tokens_per_s", rows / (took + drawing)
    weights = 2 * sum(p.numel() for p in model.parameters())
    cached = rows * context * shape.layers * 2 * shape.kv_heads * shape.width * 2
    yield "floor_ms", (weights + cached) / BANDWIDTH * 1e3
    runner.free()
    ids = torch.randint(0, shape.vocabulary, (rows, context), device=setting.device)
    wanted = {"max_new_tokens": 32, "min_new_tokens": 32, "do_sample": True, "pad_token_id": 0}

    def generate() -> dict[str, float]:
        took = seconds(lambda: model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **wanted), setting, 1)
        return {"tokens_per_s_with_prefill": rows * 32 / took}

    yield "generate", tried(generate)
    # Last: a capture that fails can leave CUDA's random numbers unusable in this process.
    yield "static_cache", tried(lambda: static_cache(setting, model, rows, context))


def static_cache(setting: Setting, model: Any, rows: int, context: int) -> dict[str, Any]:
    """Milliseconds of a step with a static cache, eager and as one CUDA graph: what a graph could save."""
    cache = StaticCache(config=model.config, max_cache_len=context + 24)  # fewer than 24 steps are run
    ids = torch.zeros(rows, 1, dtype=torch.long, device=setting.device)
    position = torch.full((rows, 1), context, device=setting.device)

    def step() -> torch.Tensor:
        logits: torch.Tensor = model(input_ids=ids, position_ids=position, past_key_values=cache, use_cache=True).logits
        return logits

    def graph_ms() -> dict[str, float]:
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            step()
        return {"ms": seconds(graph.replay, setting) * 1e3}

    with torch.inference_mode():
        found = {"eager_ms": seconds(step, setting) * 1e3}
        return {**found, "graph": tried(graph_ms)} if setting.on_gpu else found


def learn(setting: Setting) -> Measured:
    """The recipe of `make demo` on the device, for as many iterations as there is time for, with evaluations.

    The trainer computes the log-probs again, so the metrics `mismatch_...` compare it with the embedded engine.
    """
    words = ["run.iterations=30", "warmup.updates=20", "eval.every=15", "eval.tasks=100"]
    if setting.tiny:
        words = ["run.iterations=1", "warmup.updates=1", "eval.every=1", "eval.tasks=8"]
    words.append("update.old_logprob=trainer")
    for dtype in ("float32", "bfloat16"):
        limit = setting.limit_s / 2 - GRACE_S - 4
        with tempfile.TemporaryDirectory() as folder:
            done = trained("alfworld-cpu", [f"model.dtype={dtype}", *words], setting, folder, limit)
            for name in ("metrics.jsonl", "timings.jsonl"):
                for file in Path(folder).rglob(name):
                    shutil.copy(file, setting.out / f"learn_{dtype}_{name}")
        yield dtype, learned(done, setting.out / f"learn_{dtype}_metrics.jsonl")


def learned(done: Ended, metrics: Path) -> dict[str, Any]:
    """The evaluations and the last iterations of a run that has ended or was interrupted."""
    rows = [row for row in read_metrics(metrics, damaged="skip").rows if row["stage"] == "train"]
    found: dict[str, Any] = {
        "seconds": done.seconds,
        "iterations": len(rows),
        "evaluations": [line for line in done.text.splitlines() if " success " in line],
        "rows": [{k: x for k, x in row.items() if k in KEPT or "mismatch" in k} for row in rows[-3:]],
    }
    if not rows or (done.in_time and done.code):
        found["failed"] = f"exit code {done.code}: {done.text[-900:]}"
    return found


def tests(setting: Setting) -> Measured:
    """The tests marked gpu."""
    files = [str(path.relative_to(ROOT)) for path in marked()]
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-rA", "-p", "no:cacheprovider", *files]
    done = finished(command, setting.limit_s - GRACE_S - 3)
    print(done.text, flush=True)
    words = ("PASSED", "FAILED", "ERROR", "SKIPPED")
    yield "lines", [line[:300] for line in done.text.splitlines() if line.startswith(words)]
    if done.code:
        raise RuntimeError(f"pytest ended with {done.code}: {done.text[-1500:]}")


def marked() -> list[Path]:
    """The files that have tests marked gpu; the others import packages that a machine with a GPU need not have."""
    return sorted(path for path in (ROOT / "tests").rglob("test_*.py") if "mark.gpu" in path.read_text())


def lora_fsdp(setting: Setting) -> Measured:
    """A short run each with adapters, with FSDP2 on one rank and offload, and with checkpointing."""
    sections = {
        "lora": ["model.lora={r=8}"],
        "offload": ["learner.offload=true", "learner.checkpointing=true"],
        "checkpointing": ["learner.checkpointing=true"],
    }
    words = [
        "run.iterations=2",
        "batch.tasks=4",
        "warmup.updates=2",
        "warmup.episodes=16",
        "eval.every=0",
        "eval.tasks=4",
    ]
    for name, section in sections.items():
        with tempfile.TemporaryDirectory() as folder:
            limit = setting.limit_s / len(sections) - GRACE_S - 1
            done = trained("gigpo-cpu", [*words, *section], setting, folder, limit)
        found: dict[str, Any] = {"seconds": done.seconds}
        if done.code or not done.in_time:
            found["failed"] = f"exit code {done.code} after {done.seconds:.0f} s: {done.text[-900:]}"
        yield name, found


def trained(recipe: str, words: list[str], setting: Setting, folder: str, limit_s: float) -> Ended:
    """Train a recipe on the device."""
    words = [f"model.device={setting.device}", f"run.folder={folder}/run", *words]
    done = finished([sys.executable, "-m", "agentrl", "train", recipe, *words], limit_s)
    print(done.text, flush=True)
    return done


def profile(setting: Setting) -> Measured:
    """The 25 costliest kernels of an update and of a decoding step, their launches and synchronisations."""
    shape, tokens, rows = (TINY, 512, 8) if setting.tiny else (FULL._replace(layers=8), 8192, 64)
    model, rng = model_of(shape, torch.bfloat16, setting.device), np.random.default_rng(0)
    runner = PackedRunner(model, rows, 1024)
    runner.forward([Chunk(b, 0, rng.integers(0, shape.vocabulary, 100)) for b in range(rows)])
    chunks = [Chunk(b, 100, rng.integers(0, shape.vocabulary, 1)) for b in range(rows)]
    yield from costliest("decode", lambda: runner.forward(chunks), setting)
    runner.free()
    yield from costliest("update", step_of(learner_of(model), tokens, min(tokens, 4096)), setting)


def costliest(name: str, run: Callable[[], object], setting: Setting) -> Measured:
    """Name, number of calls and microseconds of each of the 25 costliest kernels (on a CPU: operators) of a call."""
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if setting.on_gpu else [])]
    key = "self_device_time_total" if setting.on_gpu else "self_cpu_time_total"
    for _ in range(2):
        run()
    with torch.profiler.profile(activities=kinds) as profiled:
        run()
        synchronise(setting)
    events = profiled.key_averages()
    ordered = sorted(events, key=lambda event: -getattr(event, key))[:25]
    yield name, [[event.key[:80], event.count, getattr(event, key)] for event in ordered]
    for word, counted in (("launches", "LaunchKernel"), ("synchronisations", "Synchronize")):
        yield f"{name}_{word}", sum(event.count for event in events if counted in event.key)


PARTS: dict[str, Callable[[Setting], Measured]] = {
    "smoke": smoke,
    "equal": equal,
    "update": updating,
    "decode": decode,
    "learn": learn,
    "tests": tests,
    "lora_fsdp": lora_fsdp,
    "profile": profile,
}


class Reading(NamedTuple):
    """Log-probs [S] of the sampled tokens, NaN elsewhere, and the gradient of an update, flat and in float64."""

    logprobs: np.ndarray
    gradient: torch.Tensor


class Still(Learner):
    """A learner that keeps the gradient of an update, and does not step."""

    gradient: torch.Tensor

    def step(self) -> StepReport:
        """Keep the gradient."""
        self.gradient = torch.cat(
            [p.grad.detach().double().flatten().cpu() for p in self.trained if p.grad is not None]
        )
        for parameter in self.trained:
            parameter.grad = None
        return StepReport(1.0, False)


def read(known: Network, graph: StepGraph) -> Reading:
    """Log-probs and gradient of a network on a graph."""
    loaded: Any = SimpleNamespace(model=known.model, tokenizer=None)
    learner = Still(loaded, OptimConfig(grad_clip=0), known=known, config=LearnerConfig())
    found = logprobs(known, graph, np.arange(len(graph)), temperature=1.0, max_tokens=4096)
    credit = Credit.of(np.random.default_rng(0).normal(size=len(graph)))
    loss = resolve(Loss, {"name": "ppo_clip"})
    update(learner, graph, credit, UpdateConfig(max_tokens=4096), loss, temperature=1.0)
    return Reading(found, learner.gradient)


def model_of(shape: Shape, dtype: torch.dtype, device: str) -> Any:
    """A Qwen3 model with random weights."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.width,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
    )
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def learner_of(model: Any, **section: Any) -> Learner:
    """A learner of the model, whose layers are plain causal attention."""
    loaded: Any = SimpleNamespace(model=model, tokenizer=None)
    return Learner(loaded, OptimConfig(), known=Network(model=model, sharing="tree"), config=LearnerConfig(**section))


def step_of(learner: Learner, tokens: int, longest: int) -> Callable[[], object]:
    """One update on one micro-batch of `tokens` packed tokens."""
    graph = memory.episodes(tokens, learner.network.config.vocab_size, longest)
    credit = Credit.of(np.random.default_rng(0).normal(size=len(graph)))
    config, loss = UpdateConfig(max_tokens=tokens), resolve(Loss, {"name": "ppo_clip"})
    return lambda: update(learner, graph, credit, config, loss, temperature=1.0)


def seconds(run: Callable[[], object], setting: Setting, repeats: int = 3) -> float:
    """The best time of some repeats after a warm-up."""
    run()
    best = float("inf")
    for _ in range(repeats):
        synchronise(setting)
        start = time.perf_counter()
        run()
        synchronise(setting)
        best = min(best, time.perf_counter() - start)
    return best


def synchronise(setting: Setting) -> None:
    """Wait until the device has done what it was given."""
    if setting.on_gpu:
        torch.cuda.synchronize()


def tried(measured: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a measurement gives, or why it failed: the next one may still say something."""
    try:
        return measured()
    except Exception as error:  # noqa: BLE001  a kernel may raise anything
        return {"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:600]}"}


def name_of(dtype: torch.dtype) -> str:
    """The type's name without its package."""
    return str(dtype).removeprefix("torch.")
