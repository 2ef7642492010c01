"""Packed passes give the log-probs and gradients of plain ones, one datum after the other."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from agentrl.model import Loaded
from agentrl.training_server import AdapterPlan, SharedBase, TrainedModel, packed_passes
from agentrl.training_server.packed_passes import micro_batches, packed, run_passes
from agentrl.training_server.verbs import PassWork, SentDatum
from tests.toys.language_model import language_model

VOCABULARY = 300
PLAN = AdapterPlan(rank=4, seed=1)


@pytest.fixture(scope="module")
def base():
    return SharedBase(language_model(dtype=torch.float32))


@pytest.fixture(scope="module")
def model(base):
    """Adapters that are not zero, so that all of their tensors have gradients."""
    made = TrainedModel(base, PLAN, 4096)
    with torch.no_grad():
        torch.manual_seed(0)
        for _, parameter in base.named(made.name):
            parameter.copy_(torch.randn_like(parameter) * 0.05)
    return made


def data(seed=0, sizes=(7, 1, 12), width=1):
    """Random datums, with targets that are not the next inputs."""
    rng = np.random.default_rng(seed)
    return [
        SentDatum(
            inputs=rng.integers(0, VOCABULARY, size),
            targets=rng.integers(0, VOCABULARY, (size, width)),
            columns={"weights": rng.normal(size=(size, width)).astype(np.float32)},
            flat=width == 1,
        )
        for size in sizes
    ]


def plain(model, one):
    """[L, W] log-probs of one datum by transformers alone."""
    logits = model.learner.model(input_ids=torch.from_numpy(one.inputs)[None]).logits[0].float()
    return logits.log_softmax(-1).gather(1, torch.from_numpy(one.targets))


def gradient(model, base):
    found = {name: parameter.grad.clone() for name, parameter in base.named(model.name)}
    model.learner.optimisers[0].zero_grad()
    return found


@pytest.mark.parametrize(("width", "max_tokens"), [(1, 4096), (3, 4096), (1, 1)])
def test_packed_passes_equal_plain_ones(model, base, width, max_tokens):
    """With max_tokens=1, a micro-batch has as many tokens as the longest datum."""
    work = PassWork(data=data(width=width), loss="cross_entropy")
    base.use(model.name)
    found = run_passes(base.network, work, max_tokens, np.ones(3))
    mine = gradient(model, base)
    total = 0.0
    for one, logprobs in zip(work.data, found.logprobs, strict=True):
        wanted = plain(model, one)
        loss = -(torch.from_numpy(one.columns["weights"]) * wanted).sum()
        loss.backward()
        total += loss.item()
        assert logprobs.shape == (one.targets[:, 0].shape if width == 1 else one.targets.shape)
        np.testing.assert_allclose(logprobs.reshape(wanted.shape), wanted.detach().numpy(), atol=2e-6)
    assert found.metrics["loss:sum"] == pytest.approx(total, rel=1e-5)
    for name, wanted in gradient(model, base).items():
        np.testing.assert_allclose(mine[name], wanted, atol=2e-4 * max(1.0, float(wanted.abs().max())))


def check(found, sharing, tokens):
    """Every target stands after its inputs, in a batch of so many tokens."""
    batch = packed(found, sharing)
    assert len(batch) == tokens
    assert batch.target.tolist() == [int(x) for one in found for x in one.targets.ravel()]
    for number, one in enumerate(found):
        at = batch.at[batch.row == number].reshape(one.targets.shape)
        assert (at == at[:, :1]).all() and batch.ids[at[:, 0]].tolist() == one.inputs.tolist()
        path = [-1, *at[:-1, 0].tolist()]
        assert batch.layout.predictor[at[:, 0]].tolist() == path


def test_no_datum_is_padded():
    check(data(sizes=(7, 1, 12)), "tree", 20)
    check(data(sizes=(7, 1, 12), width=3), "paths", 20)


def alike(lengths, own, seed=3):
    """Datums whose first `lengths` inputs are those of one text, and `own` inputs of their own."""
    text = np.random.default_rng((seed, 1)).integers(0, VOCABULARY, max(lengths))
    made = data(seed, [n + m for n, m in zip(lengths, own, strict=True)])
    for one, length in zip(made, lengths, strict=True):
        one.inputs[:length] = text[:length]
    return made


SHARED = {
    # common beginnings of the neighbours -> packed tokens
    "a group of answers": ([20, 20, 20], [5, 6, 7], 20 + 18),
    "one is the beginning of the other": ([20, 30], [0, 0], 30),
    "equal": ([20, 20], [0, 0], 20),
    "a tree": ([20, 40, 40], [3, 4, 5], 40 + 12),
    "too little in common": ([15, 15], [4, 4], 38),
}


@pytest.mark.parametrize("name", SHARED)
def test_equal_beginnings_are_computed_once(name, model, base):
    lengths, own, tokens = SHARED[name]
    found = alike(lengths, own)
    (order,) = micro_batches(found, 4096, "tree")
    check([found[number] for number in order], "tree", tokens)
    check(found, "paths", sum(lengths) + sum(own))
    base.use(model.name)
    once = run_passes(base.network, PassWork(data=found, loss="cross_entropy"), 4096, np.arange(1.0, len(found) + 1))
    gradients = gradient(model, base)
    for number, one in enumerate(found):
        asked = PassWork(data=[one], loss="cross_entropy")
        alone = run_passes(base.network, asked, 4096, np.array([number + 1.0]))
        np.testing.assert_allclose(once.logprobs[number], alone.logprobs[0], atol=2e-6)
    for key, wanted in gradient(model, base).items():
        np.testing.assert_allclose(gradients[key], wanted, atol=2e-4 * max(1.0, float(wanted.abs().max())))


def test_micro_batches_keep_alike_datums_together_within_the_limit():
    found = alike([20, 0, 20, 0, 20], [5, 30, 6, 25, 7])
    for one in found:
        one.targets[:] = 7
    batches = [sorted(one.tolist()) for one in micro_batches(found, 40, "tree")]
    assert sorted(batches) == [[0, 2, 4], [1], [3]], "20 + 5 + 6 + 7 tokens in the first, and no room for 25 more"
    assert sorted(map(len, micro_batches(found, 40, "paths"))) == [1, 1, 1, 1, 1]
    for number, one in enumerate(found):
        one.targets[:] = number
    assert sorted(map(len, micro_batches(found, 51, "tree"))) == [1, 1, 1, 2], "each target after a token counts"


def test_equal_targets_of_a_common_beginning_are_computed_once(model, base, monkeypatch):
    """The output layer costs most of a pass of a small model, and a prompt has the same targets in every datum."""
    found = alike([20, 20, 20], [5, 6, 7])
    for one in found:
        one.targets[:20] = 7
    computed = []
    stats = type(base.network).stats
    monkeypatch.setattr(
        type(base.network), "stats", lambda *given: computed.append(len(given[2].target)) or stats(*given)
    )
    base.use(model.name)
    run_passes(base.network, PassWork(data=found, loss="cross_entropy", backward=False), 4096, np.ones(3))
    assert computed == [20 + 5 + 6 + 7]


def test_forward_leaves_no_gradient_and_factors_scale_it(model, base):
    one = data()[:1]
    model.passes(PassWork(data=one, loss="cross_entropy", backward=False))
    assert all(parameter.grad is None for _, parameter in base.named(model.name))
    base.use(model.name)
    run_passes(base.network, PassWork(data=one, loss="cross_entropy"), 4096, np.array([2.0]))
    twice = gradient(model, base)
    model.passes(PassWork(data=one, loss="cross_entropy"))
    for name, once in gradient(model, base).items():
        np.testing.assert_allclose(twice[name], 2 * once, rtol=1e-5, atol=1e-7)


def test_a_model_that_runs_on_paths_only_gives_the_same(model, base):
    work = PassWork(data=data(), loss="cross_entropy", backward=False)
    base.use(model.name)
    trees = run_passes(base.network, work, 4096, np.ones(3)).logprobs
    paths = run_passes(replace(base.network, sharing="paths"), work, 4096, np.ones(3)).logprobs
    for a, b in zip(trees, paths, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


def test_adapters_lie_on_the_parts_that_the_plan_names(base):
    names = {}
    for part in ("attn", "mlp", "unembed"):
        only = {"attn": False, "mlp": False, "unembed": False, part: True}
        made = base.add(AdapterPlan(rank=2, **only))
        names[part] = {key.rpartition(".lora_")[0].rpartition(".")[2] for key, _ in base.named(made)}
        base.remove(made)
    assert names == {
        "attn": {"q_proj", "k_proj", "v_proj", "o_proj"},
        "mlp": {"gate_proj", "up_proj", "down_proj"},
        "unembed": {"lm_head"},
    }
    with pytest.raises(ValueError, match="train_attn, train_mlp and train_unembed name no layer"):
        base.add(AdapterPlan(attn=False, mlp=False, unembed=False))


def test_the_seed_of_a_plan_decides_about_its_adapters(base):
    first, second, third = (base.add(AdapterPlan(rank=2, seed=seed)) for seed in (7, 7, 8))
    equal, other = base.copy_of(second), base.copy_of(third)
    for name, tensor in base.copy_of(first).items():
        assert torch.equal(tensor, equal[name])
        assert ("lora_B" in name) == torch.equal(tensor, other[name]), "B is zero in fresh adapters"
    for name in (first, second, third):
        base.remove(name)


def test_half_precision_has_adapters_in_float32():
    base = SharedBase(language_model(dtype=torch.bfloat16))
    made = TrainedModel(base, PLAN, 4096)
    found = made.passes(PassWork(data=data(), loss="cross_entropy"))
    assert all(np.isfinite(one).all() for one in found.logprobs)
    assert {parameter.dtype for _, parameter in base.named(made.name)} == {torch.float32}
    assert all(parameter.grad is not None for _, parameter in base.named(made.name))


def test_a_model_without_linear_layers_is_refused():
    class Bare(torch.nn.Module):
        def get_output_embeddings(self):
            return None

    with pytest.raises(ValueError, match="Bare has no linear layers for adapters"):
        SharedBase(Loaded(Bare(), None))


def test_a_request_that_fails_half_way_adds_nothing_to_the_gradients(base, monkeypatch):
    model = TrainedModel(base, PLAN, 8)  # 8 tokens per micro-batch, so that each datum is one
    model.passes(PassWork(data=data(1, (7,)), loss="cross_entropy"))
    before = {name: parameter.grad.clone() for name, parameter in base.named(model.name)}
    losses = []

    def token_loss(*given):
        if losses:
            raise MemoryError("the second micro-batch")
        losses.append(losses_of(*given))
        return losses[0]

    losses_of = packed_passes.token_loss
    monkeypatch.setattr(packed_passes, "token_loss", token_loss)
    with pytest.raises(MemoryError):
        model.passes(PassWork(data=data(2, (7, 8)), loss="cross_entropy"))
    for name, parameter in base.named(model.name):
        assert torch.equal(parameter.grad, before[name]), name
    model.close()
