"""Slots, the store's plans and the choice of a runner."""

import numpy as np
import pytest
import torch

from agentrl.engines.runner import PackedRunner, PlainRunner, choose_runner
from agentrl.engines.slots import Slots
from agentrl.engines.store import Segment, Store
from agentrl.engines.support import unsupported
from tests.core.engines import MAKERS, make


def filled(slots, session, tokens):
    slot = slots.acquire(session, set(), evict=True)
    slots.plan(slot, 0, np.array(tokens))
    slots.computed[slot] = len(tokens)
    return slot


def test_keep_trims_to_the_common_beginning():
    slots = Slots(2, 64)
    slot = filled(slots, 0, [5, 6, 7, 8])
    assert slots.keep(slot, np.array([5, 6, 7, 8, 9])) == 4
    assert slots.keep(slot, np.array([5, 6, 7, 8])) == 3  # the last token is computed anew: its logits are needed
    assert slots.keep(slot, np.array([5, 6, 1, 8])) == 2
    assert slots.keep(slot, np.array([5, 6, 7, 8])) == 2  # trimmed for good
    assert slots.keep(slot, np.array([1])) == 0


@pytest.mark.parametrize("seed", range(20))
def test_donor_equals_a_slow_search(seed):
    rng = np.random.default_rng(seed)
    slots = Slots(5, 4000)
    held = {filled(slots, s, t): t for s in range(5) for t in [rng.integers(0, 2, rng.integers(1, 700)).tolist()]}
    for prompt in ([*held[2][: rng.integers(1, 600)], 1, 0, 1], rng.integers(0, 2, 3).tolist()):
        shared = {
            slot: next(
                (i for i, (a, b) in enumerate(zip(t, prompt[:-1], strict=False)) if a != b),
                min(len(t), len(prompt) - 1),
            )
            for slot, t in held.items()
        }
        donor = slots.donor(np.array(prompt))
        assert donor.length == max(shared.values())
        assert shared[donor.slot] == donor.length == donor.computed


def test_donor_prefers_what_is_computed():
    slots = Slots(2, 64)
    filled(slots, 0, [5, 6, 7])
    second = filled(slots, 1, [5, 6, 7])
    slots.computed[0] = 0
    assert slots.donor(np.array([5, 6, 7, 8])) == (second, 3, 3)


def test_acquire_takes_free_slots_first_and_never_a_busy_one():
    slots = Slots(2, 64)
    first, second = filled(slots, 0, [1]), filled(slots, 1, [2])
    assert slots.acquire(2, {first, second}, evict=True) == -1
    assert slots.acquire(2, {first}, evict=False) == -1
    assert slots.acquire(2, {first}, evict=True) == second
    assert not slots.owned(1)
    slots.release(0)
    assert slots.acquire(3, {second}, evict=False) == first
    assert slots.evictions == 1


def test_plan_by_hand():
    # two slots of 256 rows; slot 0 computes tokens 2..3, slot 1 tokens 0..2
    store = Store(1, 2, 256, torch.device("cpu"), padded=False)
    store.reserve(10)
    plan = store.make_plan([Segment(0, 2, 4), Segment(1, 0, 3)], torch.float32)
    assert plan.rows.tolist() == [2, 3, 256, 257, 258]
    assert plan.positions.tolist() == [2, 3, 0, 1, 2]
    assert plan.last.tolist() == [1, 4]
    assert plan.queries == [2, 3]
    assert plan.keys == [0, 4, 252, 3, 253]
    assert plan.masks[1] is None
    inf = torch.inf
    assert plan.masks[0].tolist() == [[0, 0, 0, -inf], [0, 0, 0, 0]]


@pytest.mark.parametrize("size", [2, 63, 64, 65, 90])
def test_masks_of_any_size_are_causal(size):
    store = Store(1, 1, 256, torch.device("cpu"), padded=False)
    store.reserve(256)
    (mask,) = store.make_plan([Segment(0, 7, 7 + size)], torch.float32).masks
    open_to = torch.arange(7 + size) <= torch.arange(7, 7 + size)[:, None]
    assert torch.equal(mask == 0, open_to)
    assert torch.equal(mask == -torch.inf, ~open_to)


def test_growing_keeps_what_is_stored():
    store = Store(1, 3, 2000, torch.device("cpu"), padded=False)
    store.reserve(10)
    store.plan = store.make_plan([Segment(1, 0, 4)], torch.float32)
    keys = torch.randn(1, 2, 4, 8)
    store.update(keys, -keys, 0)
    store.reserve(1500)
    assert store.capacity == 1500
    rows = slice(1500, 1504)
    assert torch.equal(store._spread[0][:, :, rows], keys)
    assert torch.equal(store._spread[1][:, :, rows], -keys)
    store.copy(1, 2, 3)
    assert torch.equal(store._spread[0][:, :, 3000:3003], keys[:, :, :3])


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_runner_is_chosen_by_the_configuration(kind):
    runner, reason = choose_runner(make(kind), 2, 64)
    assert isinstance(runner, PlainRunner if kind in ("window", "hybrid", "mamba") else PackedRunner)
    assert ("sliding window" in reason) == (kind == "window")
    assert bool(reason) == isinstance(runner, PlainRunner)


def test_recurrent_models_are_named():
    assert "has layers that are not plain attention: linear_attention" in unsupported(make("hybrid"))
    assert "MambaForCausalLM" in unsupported(make("mamba"))


def test_a_model_that_only_seems_plain_is_caught_by_its_numbers():
    model = make()
    attention = model.model.layers[0].self_attn
    original = attention.forward

    def biased(*args, **kwargs):  # an attention that also depends on how the batch is laid out
        out, weights = original(*args, **kwargs)
        return out + 0.1 * out.mean(1, keepdim=True), weights

    attention.forward = biased
    runner, reason = choose_runner(model, 2, 64)
    assert isinstance(runner, PlainRunner)
    assert "differ from the plain forward" in reason
