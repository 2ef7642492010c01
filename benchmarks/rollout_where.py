"""Where the embedded engine spends the time of a rollout: prefill and decoding apart, each against its bounds.

`rollout.py --where` prints this. A forward pass that gives some sequence several tokens is prefill, every other pass is
decoding. Two bounds, both measured in the same run:

- the products: the model's matrix products alone, at the row counts that the passes really had;
- the memory: every pass must read all weights once, and the keys and values of the tokens before it, at the speed with
  which one thread sums an array of 512 MB.

The shares of the parts come from the profiler of torch, in a run of their own. The profiler measures wall time, and it
makes Python and small operations slower, so only the shares inside a phase are given.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile, record_function

PHASES = ("prefill", "decode")
OUTSIDE = "sampling and scheduling, outside the passes"


@dataclass
class Passes:
    """The passes of one phase: CPU seconds, tokens, and how many passes had (rows in the layers, rows in the head)."""

    seconds: float = 0.0
    tokens: int = 0
    count: int = 0
    read: int = 0  # tokens whose keys and values the passes read
    shapes: Counter[tuple[int, int]] = field(default_factory=Counter)


class Watched:
    """A runner of the embedded engine that counts and times the forward passes of another runner."""

    def __init__(self, runner: Any) -> None:
        self.runner, self.reuses = runner, runner.reuses
        self.phases = {name: Passes() for name in PHASES}

    def forward(self, chunks: Sequence[Any]) -> torch.Tensor:
        """See `agentrl.engines.hf.forwards.Runner`."""
        rows = [len(c.ids) for c in chunks]
        phase = PHASES[0] if max(rows) > 1 else PHASES[1]
        found = self.phases[phase]
        start = time.process_time()
        with record_function(phase):
            logits: torch.Tensor = self.runner.forward(chunks)
        found.seconds += time.process_time() - start
        found.tokens += sum(rows)
        found.count += 1
        found.read += sum(c.start for c in chunks)
        found.shapes[sum(rows), len(chunks)] += 1
        return logits

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runner, name)


def bandwidth() -> float:
    """Bytes per CPU second that one thread reads from memory: the best of eight sums of 512 MB."""
    x = torch.ones(1 << 27)
    best = np.inf
    for _ in range(8):
        start = time.process_time()
        x.sum()
        best = min(best, time.process_time() - start)
    return float(4 * len(x) / best)


def products(model: Any, shapes: Counter[tuple[int, int]], seconds: Callable[[torch.Tensor, int], float]) -> float:
    """CPU seconds of the matrix products of the passes alone; `seconds` times one product of (weight, rows)."""
    inner = [m.weight for name, m in model.named_modules() if isinstance(m, torch.nn.Linear) and name != "lm_head"]
    kinds = Counter(tuple(weight.shape) for weight in inner)
    sample = {tuple(weight.shape): weight for weight in inner}
    total = 0.0
    for (rows, last), count in shapes.items():
        layers = sum(number * seconds(sample[shape], rows) for shape, number in kinds.items())
        total += count * (layers + seconds(model.lm_head.weight, last))
    return total


def memory(model: Any, found: Passes, speed: float) -> float:
    """CPU seconds in which one thread reads what the passes must read."""
    config, size = model.config, model.dtype.itemsize
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    token = 2 * config.num_hidden_layers * config.num_key_value_heads * head * size
    weights = size * sum(p.numel() for p in model.parameters())
    return float((found.count * weights + found.read * token) / speed)


def parts(run: Callable[[], Any], words: int) -> dict[str, dict[str, float]]:
    """Shares of the time of each phase by kind of operation, from one profiled run.

    Args:
        run: the rollout; its engine runs on a `Watched` runner.
        words: size of the vocabulary; an operation with this size belongs to the head.
    """
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
        run()
    spent: dict[str, Counter[str]] = {name: Counter() for name in PHASES}
    for event in found.events():
        phase = _phase(event)
        if phase:
            kind = "Python" if event.name == phase else _kind(event, words)
            spent[phase][kind] += event.self_cpu_time_total
    return {name: {kind: s / kinds.total() for kind, s in kinds.most_common()} for name, kinds in spent.items()}


def _phase(event: Any) -> str:
    """The phase in whose passes the operation ran; empty for operations outside the passes."""
    while event is not None:
        if event.name in PHASES:
            return str(event.name)
        event = event.cpu_parent
    return ""


def _kind(event: Any, words: int) -> str:
    sizes = {size for shape in event.input_shapes if isinstance(shape, list) for size in shape}
    if words in sizes and event.name in ("aten::mm", "aten::addmm", "aten::bmm"):
        return "head"
    if "attention" in event.name or "softmax" in event.name or event.name == "aten::bmm":
        return "attention"
    if event.name in ("aten::mm", "aten::addmm"):
        return "products of the layers"
    return "norms, activations, copies"


def where(
    engine: Any, model: Any, run: Callable[[], Any], seconds: Callable[[torch.Tensor, int], float]
) -> Iterator[dict[str, object]]:
    """One line per phase with its shares of both bounds, and one per kind of operation.

    Args:
        engine: an `HfEngine` of which `run` makes one whole rollout.
        model: the engine's model.
        run: makes one rollout; the engine's cache is cleared before each call.
        seconds: CPU seconds of one product of (weight [out, in], rows).
    """
    plain = engine._runner
    run()  # the first rollout of a process pays for allocations
    engine.clear()
    engine._runner = watched = Watched(plain)
    start = time.process_time()
    run()
    total = time.process_time() - start
    engine.clear()
    engine._runner = Watched(plain)
    spent = parts(run, model.config.vocab_size)
    engine._runner = plain
    speed = bandwidth()
    for name, found in watched.phases.items():
        yield {
            "phase": name,
            "passes": found.count,
            "tokens": found.tokens,
            "cpu_s": round(found.seconds, 2),
            "share": round(found.seconds / total, 3),
            "share_of_products_bound": round(products(model, found.shapes, seconds) / found.seconds, 3),
            "share_of_memory_bound": round(memory(model, found, speed) / found.seconds, 3),
        }
        for kind, share in spent[name].items():
            yield {"phase": name, "part": kind, "share": round(share, 3)}
    left = total - sum(found.seconds for found in watched.phases.values())
    yield {"phase": OUTSIDE, "cpu_s": round(left, 2), "share": round(left / total, 3)}
    yield {"gigabytes_per_cpu_s": round(speed / 1e9, 1)}
