"""Updates have no dropout, as rollouts have none, unless `learner.keep_dropout` keeps it."""

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    FalconConfig,
    GPT2Config,
    GPTNeoXConfig,
    OPTConfig,
    PhiConfig,
    Qwen3Config,
)

from agentrl.credit import Credit
from agentrl.trainer import Learner, LearnerConfig, UpdateConfig, annotate, clone, critic_maker, update
from agentrl.trainer.sections import CriticConfig, OptimConfig
from tests.graph.graphs import VOCABULARY, chains, gradient, loaded, tiny_model, trees
from tests.toys.entries import loss

LOSS = loss("ppo_clip")
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
MODELS = {
    "attention": Qwen3Config(
        **SMALL,
        intermediate_size=24,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=256,
        attention_dropout=0.3,
    ),
    "gpt2": GPT2Config(
        vocab_size=VOCABULARY, n_positions=256, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2
    ),
    "residual": PhiConfig(**SMALL, intermediate_size=24, resid_pdrop=0.3, embd_pdrop=0.3, max_position_embeddings=256),
    "hidden": FalconConfig(**SMALL, hidden_dropout=0.3, attention_dropout=0.3),
    "neox": GPTNeoXConfig(**SMALL, intermediate_size=24, hidden_dropout=0.3, attention_dropout=0.3),
    "layers": OPTConfig(
        **SMALL, ffn_dim=24, dropout=0.3, layerdrop=0.5, max_position_embeddings=256, word_embed_proj_dim=16
    ),
}


def made(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(MODELS[name])


def adapted(dropout: float) -> torch.nn.Module:
    model = get_peft_model(tiny_model(), LoraConfig(r=2, lora_dropout=dropout, target_modules=["q_proj", "up_proj"]))
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn(parameter.shape) * 0.3)
    return model.double()


def improved(learner: Learner, graph) -> dict[str, float]:
    """The metrics of an on-policy update with a KL term."""
    config = UpdateConfig(kl_coef=0.1)
    graph, _ = annotate(graph, learner, config, 1.0)
    credit = Credit.of(np.random.default_rng(0).normal(size=len(graph)))
    return update(learner, graph, credit, config, LOSS, temperature=1.0)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", [*MODELS, "lora"])
def test_the_ratio_of_an_on_policy_update_is_1(name, checkpointing):
    """pi_new and pi_old are the log-probs of one set of weights."""
    model = adapted(0.5) if name == "lora" else made(name)
    learner = Learner(
        loaded(model), OptimConfig(lr=0.01), reference=True, config=LearnerConfig(checkpointing=checkpointing)
    )
    metrics = improved(learner, trees(1))
    assert metrics["ratio"] == pytest.approx(1.0, abs=1e-6)
    assert metrics["approx_kl"] == pytest.approx(0.0, abs=1e-9) and metrics["clip_fraction"] == 0
    assert metrics["kl_ref"] == pytest.approx(0.0, abs=1e-9) and metrics["grad_norm"] > 0
    assert not any(module.training for module in learner.network.model.modules())


@pytest.mark.parametrize("name", ["attention", "gpt2", "hidden", "layers"])
def test_checkpointing_recomputes_without_dropout(name, monkeypatch):
    """The layers recompute (a layer's own forward runs twice), and the gradient is the one without checkpointing."""
    found, runs = {}, {}
    for checkpointing in (False, True):
        model = made(name)
        layer = next(m for m in model.modules() if hasattr(m, "_can_checkpoint_with_cache"))
        part = next(module for module in layer.modules() if isinstance(module, torch.nn.LayerNorm | torch.nn.Linear))
        calls = []
        part.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        learner = Learner(loaded(model), OptimConfig(), config=LearnerConfig(checkpointing=checkpointing))
        before = len(calls)
        learner.step = lambda: (0.0, False)
        clone(learner, chains(1), UpdateConfig())
        found[checkpointing], runs[checkpointing] = gradient(model), len(calls) - before
    assert runs == {False: 1, True: 2}
    torch.testing.assert_close(found[True], found[False], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("name", "sharing"), [("attention", "paths"), ("gpt2", "paths"), ("residual", "tree")])
def test_dropout_may_be_kept(name, sharing):
    if name == "residual":  # no dropout of attention weights, so a tree can be packed
        assert MODELS[name].attention_dropout == 0
    learner = Learner(loaded(made(name)), OptimConfig(lr=0.01), config=LearnerConfig(keep_dropout=True))
    assert learner.network.sharing == sharing and ("dropout" in learner.network.reason) == (sharing == "paths")
    learner._wants_reference, learner.reference_copy = True, learner.network
    metrics = improved(learner, chains(1))
    assert abs(metrics["ratio"] - 1) > 1e-4 and metrics["approx_kl"] > 1e-5
    assert not any(module.training for module in learner.network.model.modules())


@pytest.mark.parametrize("model", ["own", "head"])
def test_a_critic_has_no_dropout(model):
    """Its loss is that of the values that were read before."""
    maker = critic_maker(CriticConfig(model=model, clip=None), None, 0)
    learner = Learner(loaded(made("gpt2")), OptimConfig(lr=0.01), critic=maker)
    with torch.no_grad():
        learner.critic.head.weight.normal_(generator=torch.Generator().manual_seed(0))
    graph, _ = annotate(chains(1), learner, UpdateConfig(), 1.0)
    value = graph.column("value")
    credit = Credit.of(np.zeros(len(graph)), returns=value)
    fitted = learner.critic.fit(graph, credit, unit="group", max_tokens=10_000, seed=0)
    assert fitted["critic_loss"] == pytest.approx(0.0, abs=1e-10)
