"""What the engine tests share: small random models, plain forwards to compare with, and multi-turn loads."""

import asyncio
import itertools

import numpy as np
import torch
from transformers import (
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from agentrl.engines import HfEngine, Sampling
from agentrl.types import Observation, Request

VOCAB, END = 97, 1
SHAPE = {
    "vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 512, "bos_token_id": None, "eos_token_id": None,
    "pad_token_id": 0,
}  # fmt: skip
GPT2 = {
    "vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512, "bos_token_id": None,
    "eos_token_id": None,
}  # fmt: skip
MAMBA = {
    "vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "bos_token_id": None,
    "eos_token_id": None,
}  # fmt: skip
HYBRID = {
    **SHAPE, "num_key_value_heads": 2, "head_dim": 8, "num_experts": 2, "num_experts_per_tok": 1,
    "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "linear_num_value_heads": 2,
    "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip
MAKERS = {
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, num_key_value_heads=2, head_dim=8)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, num_key_value_heads=1)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, num_key_value_heads=4)),
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SHAPE)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**GPT2)),
    "gemma": lambda: GemmaForCausalLM(GemmaConfig(**SHAPE, num_key_value_heads=2, head_dim=8)),
    "mamba": lambda: MambaForCausalLM(MambaConfig(**MAMBA)),
    "hybrid": lambda: Qwen3NextForCausalLM(Qwen3NextConfig(**HYBRID)),
    "window": lambda: MistralForCausalLM(MistralConfig(**SHAPE, num_key_value_heads=2, sliding_window=16)),
}


class Numbers:
    """A tokenizer whose words are numbers."""

    eos_token_id = END

    def decode(self, ids, **_):
        return " ".join(map(str, ids))


def make(kind="qwen3", seed=0, std=0.4):
    """A random model in evaluation mode, with logits far enough apart for greedy tokens to be no matter of rounding."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = MAKERS[kind]().eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=std)
    return model


def engine_of(model, **settings):
    """An engine with small limits."""
    sampling = Sampling(**{"temperature": 0.0, "max_tokens": 6, **settings.pop("sampling", {})})
    return HfEngine(
        model,
        settings.pop("tokenizer", Numbers()),
        sampling,
        **{"max_slots": 6, "max_context": 400, **settings},
    )


def request(session, ids, **fields):
    """One turn."""
    return Request(
        session=session,
        token_ids=np.asarray(ids, np.int64),
        messages=(),
        observation=Observation(text=""),
        **{"noise_key": (session, len(ids)), **fields},
    )


def plain_logprobs(model, ids, temperature=1.0):
    """[T, V] float64 log-softmax after each token of one sequence: the whole forward, no cache."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor(np.asarray(ids))[None].to(model.device), use_cache=False).logits[0]
    return (logits.double() / temperature).log_softmax(-1).cpu().numpy()


def plain_greedy(model, prompt, tokens, guess=()):
    """Greedy continuation by whole forwards: one for all tokens of a right guess, then one per token."""
    ids, start, guess = list(prompt), len(prompt), list(guess[:tokens])
    if guess:
        best = plain_logprobs(model, [*prompt, *guess])[start - 1 :].argmax(-1)  # [guess + 1]
        right = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(best, guess, strict=False))
        ids += [token for _, token in right]
    while len(ids) < start + tokens and END not in ids[start:]:
        ids.append(int(plain_logprobs(model, ids)[-1].argmax()))
    return ids[start:]


def returned_logprobs(model, prompt, generation, temperature=1.0):
    """[T] float64, the log-probabilities of an answer recomputed by one whole forward under its allowed sets."""
    ids = np.concatenate([prompt, generation.token_ids])
    table = plain_logprobs(model, ids[:-1], temperature)[len(prompt) - 1 :]  # [T, V]
    found = []
    for t, token in enumerate(generation.token_ids):
        row, allowed = table[t], generation.allowed[t] if generation.allowed else ()
        found.append(row[token] - np.log(np.exp(row[allowed]).sum()) if len(allowed) else row[token])
    return np.array(found)


def play(engine, *, sessions, turns, seed=0, shared=True, choices=None, **fields):
    """[(session, prompt, generation)] of episodes that append a random observation after each answer.

    Half of the sessions start from one prompt if `shared`; now and then an observation rewrites the history.
    """
    played = []
    common = np.random.default_rng(seed).integers(2, VOCAB, 60)

    async def episode(session):
        rng = np.random.default_rng((seed, session))
        engine.open(session)
        path = common if shared and session % 2 else rng.integers(2, VOCAB, rng.integers(3, 70))
        for turn in range(turns):
            more = {} if choices is None else {"choices": choices(session, turn)}
            generation = await engine.generate(
                request(session, path, noise_key=(seed, session, turn), **more, **fields)
            )
            played.append((session, path, generation))
            if rng.random() < 0.15:
                path = path[: rng.integers(1, len(path))]
            path = np.concatenate([path, generation.token_ids, rng.integers(2, VOCAB, rng.integers(1, 20))])
        engine.release(session)

    async def everyone():
        await asyncio.gather(*map(episode, sessions))

    asyncio.run(everyone())
    return played
