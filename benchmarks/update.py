"""How much the packed update saves: one gradient of the same loss, computed in up to five layouts, on named shapes.

    python benchmarks/update.py [--shape NAME ...] [--repeats N] [--json]
    python benchmarks/update.py --crossover
    python benchmarks/update.py --model models/smollm2 [--dtype bfloat16] [--where]

CPU seconds of one thread, best of the repeats. Every layout must give the same loss and gradient. The bound is the time
of the packed tokens' matrix products at the speed of a product of 2,048 rows with an MLP matrix of the model, measured
in the same run. `--crossover` compares sharing a prompt with copying it, by the length of the prompt. `--model` takes
the model of a folder and the shape "chat", and `--where` shows what its packed update spends the time on.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForCausalLM, Qwen3Config

from agentrl.graph import Tokens, path_lengths, token_rows
from agentrl.model import Batch, microbatches, pack, token_stats
from agentrl.trainer import Learner
from agentrl.trainer.sections import OptimConfig

VOCABULARY = 2048
ROOM = 8192  # packed tokens of a micro-batch
PRETRAINED_ROOM = 2048  # the same for a model of --model, whose update then fits into 8 GB
LOGITS = 1 << 27  # most logits of a padded micro-batch, which keeps several copies of them
NEVER = 1 << 30  # more tokens than any two prompts have in common


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A batch of multi-turn episodes.

    Attributes:
        turns: turns of each episode.
        prompt: tokens before the first answer.
        answer: sampled tokens per turn, summed over the batch.
        seen: observation tokens before every later answer.
        shared: leading tokens of the prompt that all episodes have in common.
        window: every prompt is fresh: the shared part, then `window` times (seen + an answer's) tokens of
            history.
        branches: episodes after the first branch off its middle turn.
    """

    turns: tuple[int, ...]
    prompt: int
    answer: int
    seen: int
    shared: int = 0
    window: int = 0
    branches: bool = False


SHAPES = {
    "44-steps": Shape(turns=(8, 11, 12, 13), prompt=200, answer=2840, seen=63),
    "44-steps-shared-prompt": Shape(turns=(8, 11, 12, 13), prompt=200, answer=2840, seen=63, shared=200),
    "long-prompt": Shape(turns=(2,) * 8, prompt=1500, answer=1024, seen=64, shared=1500),
    "windows": Shape(turns=(10,) * 4, prompt=400, answer=1600, seen=60, shared=350, window=2),
    "tree": Shape(turns=(8,) * 8, prompt=300, answer=2560, seen=60, shared=300, branches=True),
}
CHAT = Shape(turns=(6, 8, 8), prompt=150, answer=440, seen=60)  # of a pretrained model: a chat template's prompts
APART = {torch.float32: 1e-3, torch.bfloat16: 5e-2}  # largest relative distance of two layouts' gradients


def token_table(shape: Shape) -> Tokens:
    """The shape's steps as the rows of a token table, with random ids."""
    rng = np.random.default_rng(0)
    steps = sum(shape.turns)
    answers = np.diff(np.linspace(0, shape.answer, steps + 1).astype(int))  # [N], sums to shape.answer
    shared = rng.integers(1, VOCABULARY, shape.shared).tolist()
    ids: list[int] = []
    sampled: list[bool] = []
    offsets, context, kept, length = [0], [], [], []
    first_branch = shape.turns[0] // 2
    for episode, turns in enumerate(shape.turns):
        start = first_branch if shape.branches and episode else 0
        for turn in range(start, turns):
            row = len(context)
            fresh = turn == 0 or shape.window > 0
            above = -1 if fresh else first_branch - 1 if turn == start and start else row - 1
            size = shape.prompt - shape.shared if turn == 0 else shape.seen
            if shape.window and turn:
                size = shape.prompt - shape.shared + min(turn, shape.window) * (shape.seen + int(answers[row]))
            prompt = (shared if fresh else []) + rng.integers(1, VOCABULARY, size).tolist()
            ids += prompt + rng.integers(1, VOCABULARY, answers[row]).tolist()
            sampled += [False] * len(prompt) + [True] * int(answers[row])
            offsets.append(len(ids))
            context.append(above)
            kept.append(0 if fresh else length[above])
            length.append(kept[-1] + offsets[-1] - offsets[-2])
    return Tokens(
        offsets=np.array(offsets),
        ids=np.array(ids),
        sampled=np.array(sampled),
        logprobs=np.zeros(len(ids)),
        allowed_offsets=np.zeros(len(ids) + 1, np.int64),
        allowed_ids=np.zeros(0, np.int64),
        context=np.array(context),
        context_tokens=np.array(kept),
    )


def one_row_a_step(tokens: Tokens) -> tuple[Tokens, np.ndarray]:
    """Every step with its whole path as a prompt of its own; and the original index of each token, [S']."""
    source = [np.arange(tokens.offsets[n], tokens.offsets[n + 1]) for n in range(len(tokens.context))]
    paths = [tokens.path(n) for n in range(len(tokens.context))]
    history = [len(path) - len(own) for path, own in zip(paths, source, strict=True)]
    offsets = np.cumsum([0] + [len(path) for path in paths])
    wide = Tokens(
        offsets=offsets,
        ids=np.concatenate(paths),
        sampled=np.concatenate(
            [np.append(np.zeros(h, bool), tokens.sampled[own]) for h, own in zip(history, source, strict=True)]
        ),
        logprobs=np.zeros(offsets[-1]),
        allowed_offsets=np.zeros(offsets[-1] + 1, np.int64),
        allowed_ids=np.zeros(0, np.int64),
        context=np.full(len(paths), -1),
        context_tokens=np.zeros(len(paths), np.int64),
    )
    back = [np.append(np.full(h, -1), own) for h, own in zip(history, source, strict=True)]
    return wide, np.concatenate(back)


def room(config: Any) -> int:
    """Most packed tokens of a micro-batch for a model of this configuration."""
    return ROOM if config.vocab_size == VOCABULARY else PRETRAINED_ROOM


def packed_loss(learner: Learner, tokens: Tokens, gain: np.ndarray, min_shared: int | None = None) -> tuple[float, int]:
    """Backward of -sum(gain * log-prob) through agentrl's own packing; returns (loss, number of computed tokens)."""
    rows = np.arange(len(tokens.context))
    options = {} if min_shared is None else {"min_shared": min_shared}
    batch = pack(tokens, rows, gain, sharing="tree", **options)
    total, computed = 0.0, 0
    with learner.network.attending():
        for part in microbatches(batch, room(learner.network.config)):
            loss = -(torch.from_numpy(part.weight).float() * target_logprobs(learner, part)).sum()
            loss.backward()
            total, computed = total + float(loss.detach()), computed + len(part)
    return total, computed


def target_logprobs(learner: Learner, part: Batch) -> Tensor:
    """[K] log-probs of a batch's targets."""
    net = learner.network
    hidden = net.hidden(part)[torch.from_numpy(part.at)]
    return token_stats(
        net.logits,
        hidden,
        part.target,
        part.allowed_offsets,
        part.allowed_ids,
        vocabulary=net.config.vocab_size,
    ).logprob


def padded_loss(model: Any, rows: list[tuple[np.ndarray, np.ndarray]]) -> tuple[float, int]:
    """The same through transformers' plain forward pass, rows padded to the widest, logits everywhere.

    Args:
        rows: ids [L] and gain [L] of each row; gain is 0 where a token is not trained.
    """
    width = max(len(ids) for ids, _ in rows)
    total = 0.0
    at_once = max(1, min(room(model.config), LOGITS // model.config.vocab_size) // width)
    for start in range(0, len(rows), at_once):
        part = rows[start : start + at_once]
        ids, gain = torch.zeros(len(part), width, dtype=torch.long), torch.zeros(len(part), width)
        for i, (row_ids, row_gain) in enumerate(part):
            ids[i, : len(row_ids)], gain[i, : len(row_ids)] = (
                torch.from_numpy(row_ids),
                torch.from_numpy(row_gain),
            )
        logprobs = model(input_ids=ids, use_cache=False).logits[:, :-1].float().log_softmax(-1)
        loss = -(gain[:, 1:] * logprobs.gather(2, ids[:, 1:, None])[..., 0]).sum()
        loss.backward()
        total += float(loss.detach())
    return total, len(rows) * width


def trajectories(tokens: Tokens, gain: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """One row per leaf path; a step on several paths is trained in the first of these rows."""
    continued = np.zeros(len(tokens.context), bool)
    continued[tokens.context[tokens.context >= 0]] = True
    rows, done = [], np.zeros(len(tokens.ids), bool)
    for leaf in np.flatnonzero(~continued):
        source, row = [], int(leaf)
        while row >= 0:
            source.append(np.arange(tokens.offsets[row], tokens.offsets[row + 1]))
            row = int(tokens.context[row])
        path = np.concatenate(source[::-1])
        rows.append((tokens.ids[path], np.where(done[path], 0.0, gain[path])))
        done[path] = True
    return rows


def layouts(learner: Learner, tokens: Tokens, gain: np.ndarray) -> dict[str, Callable[[], tuple[float, int]]]:
    """What is compared, by name; the first is ours and the last is what most trainers do."""
    wide, source = one_row_a_step(tokens)
    wide_gain = np.where(source >= 0, gain[source], 0.0)
    rows = token_rows(wide)
    steps = [(wide.ids[rows == n], wide_gain[rows == n]) for n in range(len(wide.context))]
    model = learner.network.model
    paths = trajectories(tokens, gain)
    found = {
        "packed": lambda: packed_loss(learner, tokens, gain),
        "packed, prompts not shared": lambda: packed_loss(learner, tokens, gain, NEVER),
        "one padded row per trajectory": lambda: padded_loss(model, paths),
        "one packed row per step": lambda: packed_loss(learner, wide, wide_gain, NEVER),
        "one padded row per step": lambda: padded_loss(model, steps),
    }
    if len(paths) == len(steps):  # windows: no step continues another, so a trajectory is not one row
        del found["one padded row per trajectory"]
    return found


def make_learner(folder: Path | None = None, dtype: str = "float32") -> Learner:
    """The model of a folder, or a Qwen3-type model of 4 million random parameters."""
    if folder is not None:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), attn_implementation="sdpa", local_files_only=True
        )
        return Learner(SimpleNamespace(model=model, tokenizer=None), OptimConfig())
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        tie_word_embeddings=True,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    return Learner(SimpleNamespace(model=model, tokenizer=None), OptimConfig())


def trained(learner: Learner) -> list[Tensor]:
    """The tensors that get the gradients: a model in half precision has float32 copies for them."""
    assert learner.masters is not None
    return [learner.masters.of(p) for p in learner.network.model.parameters()]


def gradient(learner: Learner) -> Tensor:
    """All gradients in one vector."""
    return torch.cat([p.grad.reshape(-1).float() for p in trained(learner) if p.grad is not None])


def gemm_bound(learner: Learner, tokens: Tokens) -> float:
    """Seconds of the packed update's matrix products at the bound's speed, see the module."""
    config, dtype = learner.network.config, learner.network.model.dtype
    rows = np.arange(len(tokens.context))
    batch = pack(tokens, rows, np.ones(len(tokens.ids)))
    a = torch.randn(2048, config.hidden_size).to(dtype)
    b = torch.randn(config.hidden_size, config.intermediate_size).to(dtype)
    torch.mm(a, b)
    rates = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(20):
            torch.mm(a, b)
        rates.append(20 * 2 * a.numel() * b.shape[1] / (time.process_time() - start))
    layers: Any = learner.network.model.model.layers
    linear = sum(p.numel() for p in layers.parameters() if p.ndim == 2)
    head = config.hidden_size * config.vocab_size
    width = config.num_attention_heads * config.head_dim * config.num_hidden_layers
    seen = float((batch.layout.position + 1).sum())  # (query, key) pairs
    return float(6 * (linear * len(batch) + head * len(batch.target) + 2 * width * seen) / max(rates))


def gains(tokens: Tokens) -> np.ndarray:
    """[S] weights of the log-probs in the loss: a random advantage per step, 0 where a token was not sampled."""
    rng = np.random.default_rng(1)
    advantage = rng.normal(size=len(tokens.context))[token_rows(tokens)]
    return np.where(tokens.sampled, advantage, 0.0) / tokens.sampled.sum()


def where(learner: Learner, repeats: int) -> Iterator[dict[str, object]]:
    """Shares of the CPU time of one packed update of the shape "chat", optimiser step included; best of the repeats."""
    tokens = token_table(CHAT)
    gain = gains(tokens)
    packed_loss(learner, tokens, gain)
    spent = min((parts(learner, tokens, gain) for _ in range(repeats)), key=lambda found: sum(found.values()))
    total = sum(spent.values())
    for kind, seconds in sorted(spent.items(), key=lambda one: -one[1]):
        yield {"part": kind, "cpu_s": round(seconds, 2), "share": round(seconds / total, 3)}


def parts(learner: Learner, tokens: Tokens, gain: np.ndarray) -> dict[str, float]:
    """CPU seconds of the parts of one packed update."""
    words = learner.network.config.vocab_size
    spent: dict[str, float] = {}
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
        packed_loss(learner, tokens, gain)
    for event in found.key_averages(group_by_input_shape=True):
        sizes = {size for shape in event.input_shapes if isinstance(shape, list) for size in shape}
        kind = (
            "head and loss"
            if words in sizes
            else "attention"
            if "attention" in event.key or "softmax" in event.key
            else "products of the layers"
            if event.key in ("aten::mm", "aten::addmm", "aten::bmm")
            else "norms, activations, copies"
        )
        spent[kind] = spent.get(kind, 0.0) + event.self_cpu_time_total / 1e6
    with profile(activities=[ProfilerActivity.CPU]) as found:
        learner.step()
    return spent | {"optimiser": sum(event.self_cpu_time_total for event in found.key_averages()) / 1e6}


def measure(name: str, repeats: int, learner: Learner) -> Iterator[dict[str, object]]:
    """One line for each layout of a shape."""
    tokens = token_table(CHAT if name == "chat" else SHAPES[name])
    gain, apart_at_most = gains(tokens), APART[learner.network.model.dtype]
    bound = gemm_bound(learner, tokens)
    packed_loss(learner, tokens, gain)  # the first call of a process pays for allocations
    ours: tuple[float, float, Tensor] | None = None
    for layout, run in layouts(learner, tokens, gain).items():
        seconds = np.inf
        for _ in range(repeats):
            for weight in trained(learner):
                weight.grad = None
            start = time.process_time()
            loss, computed = run()
            seconds = min(seconds, time.process_time() - start)
        found = gradient(learner)
        ours = ours or (seconds, loss, found)
        apart = float((found - ours[2]).norm() / ours[2].norm())
        near = abs(loss - ours[1]) < 0.1 * apart_at_most * max(1, abs(ours[1]))
        assert near and apart < apart_at_most, f"{layout}: another gradient"
        yield {
            "shape": name,
            "layout": layout,
            "steps": len(tokens.context),
            "response_tokens": int(tokens.sampled.sum()),
            "longest": int(path_lengths(tokens).max()),
            "tokens": computed,
            "cpu_s": round(seconds, 3),
            "ratio": round(seconds / ours[0], 2),
            "share_of_bound": round(bound / seconds, 3),
            "loss": loss,
            "gradient_apart": apart,
        }


def crossover(learner: Learner, repeats: int) -> Iterator[dict[str, object]]:
    """Sharing a prompt against computing it for every episode, by its length."""
    for shared in (8, 16, 32, 64, 128, 256, 512):
        tokens = token_table(Shape(turns=(3,) * 8, prompt=shared, answer=960, seen=60, shared=shared))
        gain = np.where(tokens.sampled, 1.0 / tokens.sampled.sum(), 0.0)
        best = {1: np.inf, NEVER: np.inf}
        for _ in range(max(3, repeats)):
            for min_shared in best:
                start = time.process_time()
                packed_loss(learner, tokens, gain, min_shared)
                best[min_shared] = min(best[min_shared], time.process_time() - start)
        yield {
            "shape": "crossover",
            "shared": shared,
            "cpu_s_shared": round(best[1], 3),
            "cpu_s_copied": round(best[NEVER], 3),
            "ratio": round(best[NEVER] / best[1], 2),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", choices=sorted(SHAPES))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--crossover", action="store_true")
    parser.add_argument("--model", type=Path, help="folder of a pretrained model; its shape is chat")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of --model's weights")
    parser.add_argument("--where", action="store_true", help="with --model: shares of the update's time")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    learner = make_learner(options.model, options.dtype)
    lines: list[dict[str, object]] = []
    wanted = ["chat"] if options.model else options.shape or list(SHAPES)
    rows = (
        crossover(learner, options.repeats)
        if options.crossover
        else where(learner, options.repeats)
        if options.where
        else (line for name in wanted for line in measure(name, options.repeats, learner))
    )
    for line in rows:
        lines.append(line)
        if not options.json:
            print("  ".join(f"{key}={value}" for key, value in line.items() if key not in ("loss", "gradient_apart")))
    if options.json:
        print(json.dumps(lines))


if __name__ == "__main__":
    main()
