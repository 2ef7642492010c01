"""A branch takes over the keys and values of the chain it leaves, whatever became of that chain's slot."""

import asyncio

import numpy as np
import pytest
import torch

from agentrl.engines import Sampling
from agentrl.engines.distribution import full_entropy, top_entropy
from agentrl.engines.hf.slots import Slots
from tests.engines.engines import VOCAB, engine_of, make, plain_greedy, plain_logprobs, request, returned_logprobs


def chain_and_branches(engine, *, turns=3, branches=4, at=40, between=(), release=True):
    """[(prompt, answer)] of branches that leave a chain after its first `at` tokens."""
    rng = np.random.default_rng(0)
    path = rng.integers(2, VOCAB, at)
    whole = []

    async def run():
        engine.open(0)
        now = path
        for turn in range(turns):
            answer = await engine.generate(request(0, now, noise_key=(0, turn)))
            now = np.concatenate([now, answer.token_ids, rng.integers(2, VOCAB, 9)])
        if release:
            engine.release(0)
        for session, prompt in between:
            engine.open(session)
            await engine.generate(request(session, prompt))
            engine.release(session)
        told = [np.concatenate([path, rng.integers(2, VOCAB, 5)]) for _ in range(branches)]

        async def branch(session, prompt):
            engine.open(session)
            engine.fork(session, 0, at)
            whole.append((prompt, await engine.generate(request(session, prompt))))
            engine.release(session)

        if not release:
            engine.release(0)
        before = (engine.stats.computed_tokens, engine.stats.forked_tokens)
        await asyncio.gather(*(branch(100 + i, prompt) for i, prompt in enumerate(told)))
        return engine.stats.computed_tokens - before[0], engine.stats.forked_tokens - before[1]

    return whole, asyncio.run(run())


@pytest.mark.parametrize("kind", ["qwen3", "gpt2"])
@pytest.mark.parametrize("at", [5, 40])
def test_branches_compute_only_what_they_add_and_say_what_the_plain_forward_says(kind, at):
    model = make(kind)
    engine = engine_of(model, sampling={"max_tokens": 1})
    played, (computed, forked) = chain_and_branches(engine, at=at)
    assert forked == 4 * at and computed == 4 * 5  # one forward each: the five tokens behind the branch point
    for prompt, answer in played:
        assert answer.token_ids.tolist() == plain_greedy(model, prompt, 1)
        np.testing.assert_allclose(answer.logprobs, returned_logprobs(model, prompt, answer), atol=1e-4)


def test_a_branch_of_a_chain_that_still_holds_its_slot():
    model = make()
    played, (_, forked) = chain_and_branches(engine_of(model), release=False)
    assert forked == 4 * 40
    assert all(a.token_ids.tolist() == plain_greedy(model, p, 6, a.token_ids) for p, a in played)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_few_slots_cost_time_and_no_truth(slots):
    model = make()
    rng = np.random.default_rng(1)
    between = [(7 + i, rng.integers(2, VOCAB, 50)) for i in range(slots)]  # takes every slot, the chain's too
    engine = engine_of(model, max_slots=slots)
    played, (_, forked) = chain_and_branches(engine, between=between)
    assert forked == 0
    assert all(a.token_ids.tolist() == plain_greedy(model, p, 6, a.token_ids) for p, a in played)
    engine = engine_of(model, max_slots=slots)
    played, (_, forked) = chain_and_branches(engine)
    assert forked >= 40  # the last free slot is the chain's own, which a branch takes over as it is
    assert all(a.token_ids.tolist() == plain_greedy(model, p, 6, a.token_ids) for p, a in played)


def test_new_weights_forget_what_branches_were_to_take_over():
    engine = engine_of(make(), sampling={"max_tokens": 1})

    async def run():
        engine.open(0)
        prompt = np.arange(2, 60)
        await engine.generate(request(0, prompt))
        engine.release(0)
        engine.open(1)
        engine.fork(1, 0, 50)
        engine.clear()
        await engine.generate(request(1, prompt))

    asyncio.run(run())
    assert engine.stats.forked_tokens == 0 and engine.stats.computed_tokens == 2 * 58


def test_a_runner_that_keeps_nothing_forks_nothing():
    model = make("window")
    played, (_, forked) = chain_and_branches(engine_of(model))
    assert forked == 0 and all(a.token_ids.tolist() == plain_greedy(model, p, 6, a.token_ids) for p, a in played)


def filled(slots, session, tokens):
    slot = slots.acquire(session, set(), evict=False)
    slots.plan(slot, 0, np.asarray(tokens))
    slots.computed[slot] = len(tokens)
    return slot


def test_slots_that_branches_wait_for_are_taken_last_by_hand():
    slots = Slots(3, 16)
    assert [filled(slots, s, [s, 5, 6]) for s in (1, 2, 3)] == [0, 1, 2]
    for session in (1, 2, 3):
        slots.release(session)
    slots.fork(9, 1)  # session 9 will go on from what session 1 left in slot 0
    assert slots.acquire(4, set(), evict=False) == 1  # slot 0 was used longest ago, and is spared
    assert slots.acquire(5, set(), evict=False) == 2
    assert slots.acquire(9, set(), evict=False) == 0 and slots.computed[0] == 3  # taken over as it is
    found = slots.source(9, np.array([1, 5, 6, 7, 8]))
    assert found == (0, 3, 3)


def test_the_source_is_compared_token_by_token():
    slots = Slots(2, 16)
    filled(slots, 1, [4, 5, 6, 7])
    slots.fork(2, 1)
    assert slots.acquire(2, set(), evict=False) == 1
    assert slots.source(2, np.array([4, 5, 9, 9, 9])) == (0, 2, 2)
    assert slots.source(2, np.array([4, 5, 9, 9, 9])) is None  # once


@pytest.mark.parametrize("seed", range(3))
def test_top_entropy_equals_a_slow_loop(seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(5, 30)) * 3
    allowed = [None, np.array([3, 7, 20]), np.array([4]), np.arange(0, 30, 2), None]
    expected = []
    for row, ids in zip(logits, allowed, strict=True):
        some = np.arange(30) if ids is None else ids
        p = np.exp(row[some] / 0.7)
        p = np.sort(p / p.sum())[::-1][:10]
        expected.append(-(p * np.log(p)).sum() / np.log(30))
    found = top_entropy(torch.from_numpy(logits), Sampling(temperature=0.7), allowed)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert found[2] == 0.0


@pytest.mark.parametrize("temperature", [0.7, 0.0])
def test_full_entropy_equals_a_slow_loop(temperature):
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(4, 30)) * 3
    allowed = [None, np.array([3, 7, 20]), np.array([4]), np.arange(0, 30, 2)]
    expected = []
    for row, ids in zip(logits, allowed, strict=True):
        p = np.exp(row[np.arange(30) if ids is None else ids] / (temperature or 1.0))
        p /= p.sum()
        expected.append(-(p * np.log(p)).sum())
    found = full_entropy(torch.from_numpy(logits), Sampling(temperature=temperature), allowed)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert found[2] == 0.0 and full_entropy(torch.zeros(0, 30), Sampling(), []).shape == (0,)


def test_the_engine_tells_the_entropy_of_each_token_when_asked():
    model = make()
    prompt = np.arange(5, 25)

    async def ask(engine):
        engine.open(0)
        return await engine.generate(request(0, prompt))

    assert asyncio.run(ask(engine_of(model))).entropy is None
    answer = asyncio.run(ask(engine_of(model, entropies=True)))
    table = plain_logprobs(model, np.concatenate([prompt, answer.token_ids]))[len(prompt) - 1 : -1]  # [T, V]
    top = np.sort(table, 1)[:, ::-1][:, :10]
    np.testing.assert_allclose(answer.entropy, -(np.exp(top) * top).sum(1) / np.log(VOCAB), atol=1e-4)
    assert answer.entropy_nats is None
    whole = asyncio.run(ask(engine_of(model, nats=True)))
    assert whole.entropy is None and whole.token_ids.tolist() == answer.token_ids.tolist()
    np.testing.assert_allclose(whole.entropy_nats, -(np.exp(table) * table).sum(1), atol=1e-4)
