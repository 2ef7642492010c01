"""How a model may be called is found out in float32; half precision is judged against its own noise."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from agentrl.model import network, probing, tree_attention
from tests.toys.language_model import language_model

ROUGH = {"num_hidden_layers": 12, "initializer_range": 0.6}  # rounding grows from layer to layer


def difference(model) -> float:
    """Over a tree and over its paths, on the ids 1 to 8, as the probe once judged every type."""
    probe = probing._Probe(model, np.arange(1, 9))
    with torch.no_grad():
        return probe.apart(probe.packed(), probe.plain())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounding_of_half_precision_does_not_cost_tree_packing(dtype):
    found = [network(language_model(seed, dtype, **ROUGH).model) for seed in range(3)]
    assert [(n.sharing, n.reason) for n in found] == [("tree", "")] * 3
    if dtype == torch.bfloat16:
        assert max(difference(n.model) for n in found) > 50 * probing.TOLERANCE  # what the probe once called an error


def break_attention(monkeypatch, only: tuple[torch.dtype, ...]) -> None:
    """Let tokens below a run attend to it with wrong values, in some types."""
    flash = tree_attention._flash

    def broken(query, key, value, queries, keys, causal, scaling):
        wrong = value if causal or value.dtype not in only else -value
        return flash(query, key, wrong, queries, keys, causal, scaling)

    monkeypatch.setattr(tree_attention, "_flash", broken)


def test_a_wrong_structure_is_found_in_float32_whatever_the_type_of_the_model(monkeypatch):
    break_attention(monkeypatch, (torch.float32,))
    for dtype in (torch.float32, torch.bfloat16):
        found = network(language_model(0, dtype).model)
        assert found.sharing == "paths" and "gives other hidden states over a tree (by" in found.reason


def test_a_kernel_that_is_wrong_in_bfloat16_alone_is_found_too(monkeypatch):
    break_attention(monkeypatch, (torch.bfloat16,))
    assert network(language_model(0, torch.float32).model).sharing == "tree"
    found = network(language_model(0, torch.bfloat16).model)
    assert found.sharing == "paths" and "in bfloat16" in found.reason and "its own noise is" in found.reason


def test_noise_that_cannot_be_measured_excuses_no_difference(monkeypatch):
    break_attention(monkeypatch, (torch.bfloat16,))
    plain = probing._Probe.plain

    def overflows(self, *, other_attention=False):
        return [x * (torch.inf if other_attention else 1.0) for x in plain(self, other_attention=other_attention)]

    monkeypatch.setattr(probing._Probe, "plain", overflows)
    found = network(language_model(0, torch.bfloat16).model)
    assert found.sharing == "paths" and "its own noise is inf" in found.reason


def test_an_architecture_that_cannot_be_made_anew_is_packed_one_path_per_row_and_says_why():
    class Odd(AutoModelForCausalLM._model_mapping[type(language_model().model.config)]):
        def __init__(self, config):
            if config.vocab_size < 100:
                raise RuntimeError("no such vocabulary")
            super().__init__(config)

    model = Odd(language_model().model.config).to(torch.bfloat16)
    found = network(model)
    assert found.sharing == "paths" and "to be probed (no such vocabulary)" in found.reason


def test_the_probe_leaves_model_and_random_numbers_alone():
    loaded = language_model(1)
    before = {name: x.clone() for name, x in loaded.model.state_dict().items()}
    loaded.model.train()
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    found = network(loaded.model)
    assert torch.equal(torch.rand(2), expected) and found.model.training
    assert found.config.num_hidden_layers == 3 and found.config._attn_implementation == "sdpa"
    assert all(torch.equal(x, before[name]) for name, x in loaded.model.state_dict().items())
