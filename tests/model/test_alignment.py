"""A model that was read from a folder computes what the model that was written does, to the last bit."""

from itertools import chain

import pytest
import torch

from agentrl.model import load_model, save_model
from agentrl.model.sections import ModelConfig, NewModel

TEXTS = ["a few words of one text", "and the words of another text"]


@pytest.mark.parametrize("hidden", [24, 32, 40, 64, 72])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("tied", [True, False])
def test_a_loaded_model_lies_in_aligned_memory_and_gives_the_same_bits(hidden, heads, tied, tmp_path):
    new = NewModel(layers=2, hidden=hidden, intermediate=3 * hidden // 2, heads=heads, kv_heads=1, tied=tied)
    made = load_model(ModelConfig(new=new, device="cpu"), 0, texts=TEXTS)
    save_model(made, tmp_path / "model")
    read = load_model(ModelConfig(path=str(tmp_path / "model"), device="cpu"), 0)

    for name, tensor in chain(read.model.named_parameters(), read.model.named_buffers()):
        assert tensor.data_ptr() % 64 == 0, name
    assert (read.model.get_input_embeddings().weight is read.model.get_output_embeddings().weight) == tied
    for length in (1, 3, 7, 16):
        ids = torch.arange(length)[None] % len(made.tokenizer)
        found = []
        for model in (made.model, read.model):
            model.zero_grad()
            logits = model(input_ids=ids).logits
            logits.log_softmax(-1)[..., 1].sum().backward()
            found.append([logits.detach(), *(p.grad.clone() for p in model.parameters())])
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)
