"""Tokens per CPU second of the embedded engine against `transformers.generate` that prefills every turn again.

    python benchmarks/rollout.py [--json] [--repeats 3] [--trajectories 64] [--turns 4] ...  (see --help)
    python benchmarks/rollout.py --model models/smollm2 --trajectories 16 --prompt 256 --observation 64 --repeats 1
        [--choices 20] [--vllm-python .venv-vllm/bin/python] | [--where]

Load: greedy multi-turn episodes of a Qwen3-type model with 4.5M random parameters, fp32, one thread. Every answer has
the same number of tokens and no end token, which is the best case for `generate`: in lock step, no sequence waits for
a longer one. `generate` gets the whole history left-padded each turn; the engine keeps keys and values across turns.
Both sides' tokens are counted, and compared token by token (equal except where two random logits are equal up to
rounding).

Roofline: the model's matrix products alone, at the row counts of an ideal schedule (each token once, all trajectories
in one batch), timed on this machine in the same run. No attention, no norms, no Python. In decoding it is the bound of
the memory's bandwidth too, because each product reads the whole weight matrix.

`--model` takes a model from a folder. `--choices` also measures the engine under `actions="admissible"`: every answer
is one of that many sequences, and is sampled. `--vllm-python` names the interpreter of an environment with vLLM for the
CPU (`make vllm`), and adds vLLM with one thread as a second peer (see vllm_peer.py). `--where` measures only where the
engine spends its time, prefill and decoding apart (see rollout_where.py).
"""

import argparse
import asyncio
import json
import math
import platform
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from agentrl.engines import HfEngine, Sampling
from agentrl.types import Observation, Request

VOCAB = 5120
CONTEXT = 2048  # tokens of prompt and answer together
WAYS = (4, 3, 3, 3)  # number of different tokens at the first places of the listed answers; at later places one


@dataclass(frozen=True)
class Load:
    """Sizes: trajectories, turns, and tokens of the first prompt, of each observation and of each answer."""

    trajectories: int
    turns: int
    prompt: int
    observation: int
    answer: int

    def words(self) -> tuple[np.ndarray, np.ndarray]:
        """First prompts [trajectories, prompt] and observations [trajectories, turns, observation]."""
        rng = np.random.default_rng(0)
        return (
            rng.integers(1, VOCAB, (self.trajectories, self.prompt)),
            rng.integers(1, VOCAB, (self.trajectories, self.turns, self.observation)),
        )


class Numbers:
    """A tokenizer of numbers: the load has no words."""

    eos_token_id = None

    def decode(self, ids: list[int], **_: Any) -> str:
        """The ids as text."""
        return " ".join(map(str, ids))


def make_model(folder: Path | None = None, dtype: str = "float32") -> Any:
    """The model of a folder, without its end tokens; or 4.5M random parameters."""
    if folder is not None:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), local_files_only=True).eval()
        model.generation_config.eos_token_id = None
        return model
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB, hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=64, max_position_embeddings=2048, tie_word_embeddings=True,
        initializer_range=0.06, bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).eval()


def make_tokenizer(folder: Path | None = None) -> Any:
    """The tokenizer of a folder; or one of as many words as the random model has tokens."""
    if folder is not None:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    from agentrl.chat.word_tokenizer import build_word_tokenizer

    special = len(build_word_tokenizer(["w0 w1"])) - 2
    return build_word_tokenizer([" ".join(f"w{i}" for i in range(VOCAB - special))])


def run_generate(model: Any, load: Load) -> np.ndarray:
    """[trajectories, turns, answer] tokens, whole history prefilled every turn."""
    first, observations = load.words()
    history, answers = torch.from_numpy(first), []
    for turn in range(load.turns):
        with torch.inference_mode():
            out = model.generate(
                history,
                attention_mask=torch.ones_like(history),
                max_new_tokens=load.answer,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
        answers.append(out[:, history.shape[1] :].numpy())
        history = torch.cat([out, torch.from_numpy(observations[:, turn])], 1)
    return np.stack(answers, 1)


def listed(load: Load, count: int) -> list[list[list[np.ndarray]]]:
    """[trajectories][turns][count] different answers of `load.answer` tokens, as a trie."""
    rng = np.random.default_rng(1)

    def answers() -> list[np.ndarray]:
        words = [rng.integers(2, VOCAB, way) for way in (*WAYS, *[1] * load.answer)[: load.answer - 1]]
        found: set[tuple[int, ...]] = set()
        while len(found) < count:
            found.add((*(int(word[rng.integers(len(word))]) for word in words), 1))
        return [np.array(answer) for answer in sorted(found)]

    return [[answers() for _ in range(load.turns)] for _ in range(load.trajectories)]


def run_engine(engine: Any, load: Load, choices: Any = None) -> list[list[np.ndarray]]:
    """Each trajectory's answers, episodes asking at their own pace; `choices` as `listed` gives them, None: free."""
    first, observations = load.words()

    async def episode(session: int) -> list[np.ndarray]:
        engine.open(session)
        path, answers = first[session], []
        for turn in range(load.turns):
            request = Request(
                session=session,
                token_ids=path,
                messages=(),
                observation=Observation(text=""),
                max_tokens=load.answer,
                noise_key=(session, turn),
                choices=None if choices is None else choices[session][turn],
            )
            answers.append((await engine.generate(request)).token_ids)
            path = np.concatenate([path, answers[-1], observations[session, turn]])
        engine.release(session)
        return answers

    async def everyone() -> list[list[np.ndarray]]:
        return await asyncio.gather(*(episode(s) for s in range(load.trajectories)))

    return asyncio.run(everyone())


def gemm_bound(model: Any, load: Load) -> float:
    """CPU seconds of the matrix products of an ideal schedule (see the module)."""
    inner = [m.weight for name, m in model.named_modules() if isinstance(m, torch.nn.Linear) and name != "lm_head"]
    batch = load.trajectories
    rows = Counter({batch * load.prompt: 1, batch: load.turns * (load.answer - 1)})
    rows[batch * (load.observation + 1)] += load.turns - 1
    total = 0.0
    for count, forwards in rows.items():
        for weight in inner:
            total += forwards * linear_seconds(weight, count)
        total += forwards * linear_seconds(model.lm_head.weight, batch)
    return total


def linear_seconds(weight: torch.Tensor, rows: int) -> float:
    """CPU seconds of one product with [rows, in] inputs, the best of 5 rounds of at least 5 ms."""
    x = torch.randn(rows, weight.shape[1]).to(weight.dtype)
    times = []
    with torch.inference_mode():
        for _ in range(6):
            calls, start = 0, time.process_time()
            while time.process_time() - start < 0.005:
                torch.nn.functional.linear(x, weight)
                calls += 1
            times.append((time.process_time() - start) / calls)
    return min(times[1:])


def cpu_seconds(run: Any) -> tuple[float, Any]:
    """CPU seconds of a call, and what it returned."""
    start = time.process_time()
    result = run()
    return time.process_time() - start, result


def choosing(model: Any, load: Load, count: int, repeats: int) -> dict[str, Any]:
    """The engine with listed answers, which it samples; tokens without an alternative are counted like the others."""
    sets, times = listed(load, count), []
    for _ in range(repeats + 1):
        engine = HfEngine(
            model,
            Numbers(),
            Sampling(),
            max_slots=load.trajectories,
            max_context=CONTEXT,
            end_ids=(),
            actions="admissible",
        )
        seconds, answers = cpu_seconds(lambda engine=engine: run_engine(engine, load, sets))
        times.append(seconds)
    tokens = sum(len(ids) for path in answers for ids in path)
    if tokens != load.trajectories * load.turns * load.answer:
        raise SystemExit(f"an answer is not one of the listed ones: {tokens} tokens")
    return {
        "choices": count,
        "choices_cpu_s": round(min(times[1:]), 3),
        "choices_tokens_per_cpu_s": round(tokens / min(times[1:]), 1),
        "choices_forced_tokens": engine.stats.forced_tokens,
    }


def beside_vllm(model: Any, folder: Path | None, python: Path, load: Load, count: int, repeats: int) -> dict[str, Any]:
    """vLLM on the same load (see vllm_peer.py); the numbers of tokens must be those of the embedded engine."""
    sys.path.insert(0, str(Path(__file__).parents[1]))  # the project; `benchmarks` is not installed
    from benchmarks import vllm_peer

    sets = listed(load, count) if count else None
    found = vllm_peer.measure(
        model,
        make_tokenizer(folder),
        python,
        lambda engine, choices: run_engine(engine, load, choices),
        sets,
        context=CONTEXT,
        slots=load.trajectories,
        repeats=repeats,
    )
    wanted = load.trajectories * load.turns * load.answer
    counted = {name: found[name] for name in ("vllm_tokens", "vllm_choices_tokens") if name in found}
    if set(counted.values()) != {wanted}:
        raise SystemExit(f"expected {wanted} tokens, vLLM returned {counted}")
    return found


def measure(load: Load, repeats: int, model: Any) -> dict[str, Any]:
    """Both sides in turn, `repeats` times after one warm-up; the best of each."""
    engine = HfEngine(
        model, Numbers(), Sampling(temperature=0.0), max_slots=load.trajectories, max_context=CONTEXT, end_ids=()
    )
    bound = gemm_bound(model, load)
    slow, fast = [], []
    for _ in range(repeats + 1):
        seconds, plain = cpu_seconds(lambda: run_generate(model, load))
        slow.append(seconds)
        engine.clear()
        seconds, ours = cpu_seconds(lambda: run_engine(engine, load))
        fast.append(seconds)
    wanted = load.trajectories * load.turns * load.answer
    counted = sum(len(ids) for answers in ours for ids in answers)
    if plain.size != wanted or counted != wanted:
        raise SystemExit(f"expected {wanted} tokens, generate returned {plain.size}, the engine {counted}")
    same = int(sum((np.array(a) == p).all(1).sum() for a, p in zip(ours, plain, strict=True)))
    a, b = min(slow[1:]), min(fast[1:])
    return {
        "benchmark": "rollout",
        "parameters": sum(p.numel() for p in model.parameters()),
        "load": vars(load),
        "tokens": wanted,
        "generate_cpu_s": round(a, 3),
        "engine_cpu_s": round(b, 3),
        "generate_tokens_per_cpu_s": round(wanted / a, 1),
        "engine_tokens_per_cpu_s": round(wanted / b, 1),
        "ratio": round(a / b, 2),
        "equal_answers": same,
        "answers": load.trajectories * load.turns,
        "gemm_bound_cpu_s": round(bound, 3),
        "share_of_bound": round(bound / b, 3),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu": platform.processor() or platform.machine(),
    }


def where(model: Any, load: Load) -> list[dict[str, object]]:
    """Prefill and decoding of the embedded engine against their bounds, and their parts."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from benchmarks import rollout_where

    engine = HfEngine(
        model, Numbers(), Sampling(temperature=0.0), max_slots=load.trajectories, max_context=CONTEXT, end_ids=()
    )
    return list(rollout_where.where(engine, model, lambda: run_engine(engine, load), linear_seconds))


def main() -> None:
    """Print one table, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("trajectories", 64), ("turns", 4), ("prompt", 128), ("observation", 32), ("answer", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", type=Path, help="folder of a pretrained model")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of --model's weights")
    parser.add_argument("--choices", type=int, default=0, help="number of listed answers; 0: none")
    parser.add_argument("--vllm-python", type=Path, help="interpreter with vLLM for the CPU")
    parser.add_argument("--where", action="store_true", help="where the engine spends its time")
    parser.add_argument("--json", action="store_true")
    given = vars(parser.parse_args())
    as_json, repeats, choices = given.pop("json"), given.pop("repeats"), given.pop("choices")
    folder, python, dtype = given.pop("model"), given.pop("vllm_python"), given.pop("dtype")
    parts = given.pop("where")
    torch.set_num_threads(1)
    model = make_model(folder, dtype)
    load = Load(**given)
    if choices > math.prod(WAYS[: load.answer - 1]):
        parser.error(f"--choices {choices}: there are {math.prod(WAYS[: load.answer - 1])} answers of this length")
    if parts:
        lines = where(model, load)
        print(json.dumps(lines) if as_json else "\n".join("  ".join(f"{k}={v}" for k, v in x.items()) for x in lines))
        return
    result = measure(load, repeats, model)
    if choices:
        result |= choosing(model, load, choices, repeats)
    if python:
        result |= beside_vllm(model, folder, python, load, choices, repeats)
    if as_json:
        print(json.dumps(result))
        return
    for key, value in result.items():
        print(f"{key:28} {value}")


if __name__ == "__main__":
    main()
