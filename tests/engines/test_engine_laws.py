"""The embedded engine against plain forwards: tokens, log-probabilities, noise."""

import itertools

import numpy as np
import pytest
import torch

from agentrl.engines.hf.forwards import PackedRunner
from tests.engines.engines import (
    END,
    VOCAB,
    engine_of,
    make,
    plain_greedy,
    plain_logprobs,
    play,
    returned_logprobs,
)

PACKED = ["qwen3", "llama", "qwen2", "gpt_neox", "gpt2", "gemma"]
PLAIN = ["window", "hybrid", "mamba"]
TOLERANCE = 1e-4  # nats: float32 rounding of two ways to batch the same products
RECURRENT = 1e-2  # a recurrent layer computes a prompt in blocks and an answer step by step, by two formulas of its own


@pytest.mark.parametrize(("kind", "seed"), [*((k, s) for k in PACKED for s in range(2)), *((k, 0) for k in PLAIN)])
def test_greedy_tokens_equal_the_plain_forward(kind, seed):
    model = make(kind, seed)
    engine = engine_of(model)
    assert ("kept" in str(engine.describe()["cache"])) == (kind in PACKED)
    played = play(engine, sessions=range(9), turns=4, seed=seed)
    assert len(played) == 36
    for _, prompt, generation in played:
        assert generation.token_ids.tolist() == plain_greedy(model, prompt, 6, generation.token_ids)
        again = returned_logprobs(model, prompt, generation)
        np.testing.assert_allclose(generation.logprobs, again, atol=RECURRENT if kind == "hybrid" else TOLERANCE)
    if kind in PACKED:
        assert engine.stats.reused_tokens > 0.4 * engine.stats.prompt_tokens


@pytest.mark.parametrize("seed", range(6))
def test_greedy_tokens_over_many_loads_and_few_slots(seed):
    rng = np.random.default_rng(seed)
    model = make("qwen3", 10 + seed)
    engine = engine_of(model, max_slots=int(rng.integers(1, 8)), max_batch_tokens=int(rng.integers(1, 200)))
    for _, prompt, generation in play(engine, sessions=range(int(rng.integers(1, 14))), turns=6, seed=seed):
        assert generation.token_ids.tolist() == plain_greedy(model, prompt, 6, generation.token_ids)


@pytest.mark.parametrize("kind", ["qwen3", "gpt_neox", "window"])
def test_sampled_logprobs_equal_the_plain_forward(kind):
    model = make(kind)
    engine = engine_of(model, sampling={"temperature": 0.7, "top_p": 0.9, "top_k": 40})
    for _, prompt, generation in play(engine, sessions=range(7), turns=3):
        assert generation.allowed is not None
        assert all(t in a for t, a in zip(generation.token_ids, generation.allowed, strict=True))
        again = returned_logprobs(model, prompt, generation, temperature=0.7)
        np.testing.assert_allclose(generation.logprobs, again, atol=TOLERANCE)


def test_gathered_blocks_equal_ranges_of_slots(monkeypatch):
    # the path that GPUs take, on the CPU
    model = make()
    ranges = play(engine_of(model), sessions=range(9), turns=4)
    made = PackedRunner.__init__
    monkeypatch.setattr(PackedRunner, "__init__", lambda self, *a, **k: made(self, *a, **{**k, "gather": True}))
    engine = engine_of(model)
    assert engine._runner.gather
    gathered = play(engine, sessions=range(9), turns=4)
    for (_, _, a), (_, _, b) in zip(ranges, gathered, strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=TOLERANCE)


@pytest.mark.parametrize("deterministic", [False, True])
def test_same_noise_same_tokens_whatever_else_is_in_the_batch(deterministic):
    model = make(std=0.2)
    settings = {"sampling": {"temperature": 1.0}, "deterministic": deterministic}
    together = play(engine_of(model, max_slots=16, **settings), sessions=range(12), turns=3)
    for session in (0, 5, 11):
        alone = play(engine_of(model, **settings), sessions=[session], turns=3)
        crowd = [g for s, _, g in together if s == session]
        assert [g.token_ids.tolist() for _, _, g in alone] == [g.token_ids.tolist() for g in crowd]


def test_noise_key_alone_decides_among_copies():
    model = make(std=0.2)
    played = play(engine_of(model, sampling={"temperature": 1.0}), sessions=(1, 3, 5), turns=1)
    assert len({tuple(g.token_ids) for _, _, g in played}) > 1  # copies of one prompt, each with its own key


def test_deterministic_runs_repeat_to_the_bit():
    model = make(std=0.2)
    settings = {"deterministic": True, "sampling": {"temperature": 1.0}, "max_slots": 5}
    engine = engine_of(model, **settings)
    first = play(engine, sessions=range(9), turns=3)
    engine.clear()
    second = play(engine, sessions=range(9), turns=3)
    for (s, _, a), (z, _, b) in zip(first, second, strict=True):
        assert s == z
        assert a.token_ids.tobytes() == b.token_ids.tobytes()
        assert a.logprobs.tobytes() == b.logprobs.tobytes()


CHOICES = [np.array(c) for c in ([5, 9, 7, END], [5, 9, 8, END], [5, 6, END], [40, END], [41, 42, 43, END])]


def choice_probabilities(model, prompt, temperature):
    """Each choice's probability by enumeration: every step renormalised over what may follow its prefix."""
    found = []
    for choice in CHOICES:
        table = plain_logprobs(model, np.concatenate([prompt, choice[:-1]]), temperature)[len(prompt) - 1 :]
        total = 0.0
        for t in range(len(choice)):
            following = sorted({int(c[t]) for c in CHOICES if len(c) > t and c[:t].tolist() == choice[:t].tolist()})
            total += table[t][choice[t]] - np.log(np.exp(table[t][following]).sum())
        found.append(total)
    return np.array(found)


def test_choices_are_drawn_with_their_enumerated_probabilities():
    model = make(std=0.25)
    prompt = np.random.default_rng(3).integers(2, VOCAB, 30)
    logp = choice_probabilities(model, prompt, 0.8)
    np.testing.assert_allclose(np.exp(logp).sum(), 1, atol=1e-9)
    engine = engine_of(model, sampling={"temperature": 0.8}, actions="admissible", max_slots=64)
    counts, n = np.zeros(5), 2000
    played = play_same(engine, prompt, n)
    for generation in played:
        number = [c.tolist() for c in CHOICES].index(generation.token_ids.tolist())
        counts[number] += 1
        assert generation.finish == "stop"
        np.testing.assert_allclose(generation.logprobs.sum(), logp[number], atol=1e-4)
    expected = n * np.exp(logp)
    assert expected.min() > 5
    assert ((counts - expected) ** 2 / expected).sum() < 23.5  # 4 degrees of freedom, p = 1e-4, fixed noise


def play_same(engine, prompt, n):
    import asyncio

    from tests.engines.engines import request

    async def everyone():
        asks = (engine.generate(request(i, prompt, noise_key=(i,), choices=CHOICES)) for i in range(n))
        return await asyncio.gather(*asks)

    return asyncio.run(everyone())


@pytest.mark.parametrize("kind", ["qwen3", *PLAIN])
def test_guided_tokens_and_sets_of_random_choices(kind):
    model = make(kind)
    rng = np.random.default_rng(0)
    table = {
        (s, t): [np.append(rng.integers(2, 8, rng.integers(0, 5)), END) for _ in range(rng.integers(1, 7))]
        for s, t in itertools.product(range(8), range(4))
    }
    engine = engine_of(model, sampling={"temperature": 1.0}, max_slots=4)
    turns = dict.fromkeys(range(8), 0)
    for session, prompt, generation in play(engine, sessions=range(8), turns=4, choices=lambda s, t: table[s, t]):
        offered = {tuple(c) for c in table[session, turns[session]]}
        turns[session] += 1
        assert tuple(generation.token_ids) in offered
        for t, allowed in enumerate(generation.allowed):
            head = tuple(generation.token_ids[:t])
            assert allowed.tolist() == sorted({c[t] for c in offered if c[:t] == head})
            assert len(allowed) > 1 or generation.logprobs[t] == 0.0
        again = returned_logprobs(model, prompt, generation)
        np.testing.assert_allclose(generation.logprobs, again, atol=RECURRENT if kind == "hybrid" else TOLERANCE)


def test_engine_leaves_the_model_as_it_was():
    model = make()
    model.train()
    before = model.config._attn_implementation
    play(engine_of(model), sessions=range(3), turns=2)
    assert model.training
    assert model.config._attn_implementation == before
    ids = torch.arange(2, 20)[None]
    model(input_ids=ids, labels=ids).loss.backward()  # rotary buffers touched by the engine still take part in training
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [*PACKED, "window"])
def test_cuda_greedy_tokens_equal_the_plain_forward(kind):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    model = make(kind).to("cuda")
    engine = engine_of(model)
    for _, prompt, generation in play(engine, sessions=range(9), turns=4):
        assert generation.token_ids.tolist() == plain_greedy(model, prompt, 6, generation.token_ids)
        np.testing.assert_allclose(generation.logprobs, returned_logprobs(model, prompt, generation), atol=1e-3)
