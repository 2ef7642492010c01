"""Packed passes give the log-probs and gradients of plain ones, one datum after the other."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from agentrl.model import Loaded
from agentrl.training_server import AdapterPlan, SharedBase, TrainedModel
from agentrl.training_server.packed_passes import packed, run_passes
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


def test_no_datum_is_padded_and_targets_stay_with_their_datum():
    found = data(sizes=(7, 1, 12))
    batch = packed(found, "tree")
    assert len(batch) == 20 and len(batch.target) == 20
    for number, one in enumerate(found):
        mine = np.flatnonzero(batch.row == number)
        order = np.argsort(batch.source[mine])
        assert batch.target[mine][order].tolist() == one.targets[:, 0].tolist()
        assert batch.ids[batch.at[mine]][order].tolist() == one.inputs.tolist()


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
