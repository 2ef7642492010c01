"""The law of packing: loss and gradient are those of the plain forward pass, one step or one path at a
time."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import (
    Gemma3TextConfig,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    Qwen3MoeConfig,
    Qwen3NextConfig,
)

from agentrl.credit import Credit
from agentrl.graph import Paths, StepGraph, decisions, path_lengths, paths
from agentrl.model import network
from agentrl.trainer import Learner, annotate, clone, update
from agentrl.trainer.sections import OptimConfig, UpdateConfig
from tests.graph.graphs import (
    VOCABULARY,
    Row,
    build,
    chains,
    gradient,
    loaded,
    partial,
    plain_tokens,
    tiny_model,
    trees,
    windows,
)
from tests.toys.entries import loss

GRAPHS = [chains, trees, windows, partial]
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4}


def frozen_learner(model, **options) -> Learner:
    """A learner whose step keeps the gradient and the weights as they are."""
    learner = Learner(loaded(model), OptimConfig(lr=0.0, grad_clip=0.0, weight_decay=0.0), **options)
    learner.step = lambda: SimpleNamespace(grad_norm=0.0, skipped=False).__dict__.values()
    return learner


def noisy(graph: StepGraph, seed: int, width: float = 0.8) -> StepGraph:
    """Old and reference log-probs that are off, so that ratios are clipped on both sides and KL is not 0."""
    rng = np.random.default_rng(seed)
    size = len(graph.tokens.ids)
    base = np.zeros(size)
    model = tiny_model()
    with torch.no_grad():
        for row in range(len(graph)):
            for s, logprob, _ in plain_tokens(model, graph, row):
                base[s] = logprob.item()
    return graph.with_token_columns(
        old_logprob=base + rng.normal(0, width, size), ref_logprob=base + rng.normal(0, width, size)
    )


@functools.cache
def noisy_graph(make, seed: int) -> StepGraph:
    return noisy(make(seed), seed)


def slow_loss(model, graph, rows, advantage, share, config, loss_config, temperature=1.0) -> torch.Tensor:
    """The loss of spec and papers, written token by token; `rows` may repeat, with an advantage and share
    each."""
    total = torch.zeros((), dtype=torch.float64)
    for row, a, w in zip(rows, advantage, share, strict=True):
        for s, logprob, entropy in plain_tokens(model, graph, row, temperature):
            ratio = (logprob - graph.tokens.columns["old_logprob"][s]).exp()
            clipped = ratio.clamp(1 - loss_config.clip_low, 1 + loss_config.clip_high)
            term = torch.maximum(-a * ratio, -a * clipped)
            if a < 0:
                term = torch.minimum(term, torch.tensor(-a * loss_config.dual_clip))
            difference = graph.tokens.columns["ref_logprob"][s] - logprob
            kl = (difference.exp() - difference - 1).clamp(-10, 10)
            total = total + w * (term + config.kl_coef * kl - config.entropy_coef * entropy)
    return total


def counted(graph: StepGraph, row: int) -> int:
    """Decisions of a row."""
    start, stop = graph.tokens.offsets[row : row + 2]
    return int(decisions(graph.tokens)[start:stop].sum())


CONFIG = UpdateConfig(kl_coef=0.3, entropy_coef=0.2)
LOSS = loss("ppo_clip", clip_low=0.2, clip_high=0.28, dual_clip=2.0)


def both(model, graph, credit, rows, advantage, share, config=CONFIG, sharing=None, temperature=1.0):
    """(packed loss, packed gradient, slow loss, slow gradient)."""
    learner = frozen_learner(model, sharing=sharing)
    model.zero_grad()
    metrics = update(learner, graph, credit, config, LOSS, temperature=temperature)
    packed = gradient(model)
    model.zero_grad()
    slow = slow_loss(model, graph, rows, advantage, share, config, LOSS.config, temperature)
    slow.backward()
    return metrics, packed, slow, gradient(model)


@pytest.mark.parametrize("make", GRAPHS)
@pytest.mark.parametrize("room", [0, pytest.param(30, marks=pytest.mark.slow), 100_000])
@pytest.mark.parametrize("sharing", ["tree", "paths"])
def test_packed_gradient_is_the_unpacked_one(make, room, sharing):
    for seed in range(2):
        graph = noisy_graph(make, seed)
        max_tokens = int(path_lengths(graph.tokens).max()) + room
        rng = np.random.default_rng(seed)
        advantage = rng.normal(size=len(graph))
        assigned = rng.random(len(graph)) < 0.8
        assigned[0] = True
        rows = np.flatnonzero(assigned)
        tokens = sum(counted(graph, row) for row in rows)
        model = tiny_model()
        config = CONFIG.model_copy(update={"max_tokens": max_tokens})
        credit = Credit.of(advantage, assigned=assigned)
        share = [1 / tokens] * len(rows)
        metrics, packed, slow, plain = both(model, graph, credit, rows, advantage[rows], share, config, sharing)
        assert metrics["loss"] == pytest.approx(slow.item(), abs=1e-7)
        torch.testing.assert_close(packed, plain, rtol=1e-5, atol=1e-6)
        assert metrics["microbatches"] == 1 if room > 100 else metrics["microbatches"] > (room == 0)
        assert metrics["dropped_rows"] == len(graph) - len(rows)
        assert metrics["decision_tokens"] == tokens


@pytest.mark.parametrize("make", [chains, trees])
def test_allowed_sets_and_temperature(make):
    for seed in range(4):
        graph = make(seed, restricted=True)
        graph = noisy(graph, seed)
        advantage = np.random.default_rng(seed).normal(size=len(graph))
        rows = np.arange(len(graph))
        tokens = sum(counted(graph, row) for row in rows)
        metrics, packed, slow, plain = both(
            tiny_model(),
            graph,
            Credit.of(advantage),
            rows,
            advantage,
            [1 / tokens] * len(rows),
            temperature=0.7,
        )
        assert metrics["loss"] == pytest.approx(slow.item(), abs=1e-7)
        torch.testing.assert_close(packed, plain, rtol=1e-5, atol=1e-6)


def total(on: Paths, x: np.ndarray) -> np.ndarray:
    """Sums over the paths through each row."""
    return np.bincount(on.row, x)


@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"])
def test_a_shared_step_counts_as_its_expanded_copies(aggregation):
    """Root-to-leaf rows, each with its path's own advantage, against the tree with P, M and W; KL, entropy
    and dual clip on."""
    for seed in range(5):
        graph = noisy(trees(seed), seed)
        on = paths(graph)
        per_path = np.random.default_rng(seed).normal(size=len(on.row))  # every copy has an advantage of its own

        positive, negative = total(on, np.maximum(per_path, 0)), total(on, np.maximum(-per_path, 0))
        credit = Credit(
            advantage=positive - negative,
            positive=positive,
            negative=negative,
            weight=total(on, np.ones(len(on.row))),
            assigned=np.ones(len(graph), bool),
        )
        sizes = np.array([counted(graph, row) for row in on.row])
        share = {
            "token-mean": np.full(len(on.row), 1 / sizes.sum()),
            "seq-mean-token-sum": np.full(len(on.row), 1 / len(on.row)),
            "seq-mean-token-mean": 1 / (len(on.row) * sizes),
        }[aggregation]
        config = CONFIG.model_copy(update={"aggregation": aggregation})
        metrics, packed, slow, plain = both(tiny_model(), graph, credit, on.row, per_path, share, config)
        assert len(on.row) > len(graph)
        assert metrics["loss"] == pytest.approx(slow.item(), abs=1e-7)
        torch.testing.assert_close(packed, plain, rtol=1e-5, atol=1e-6)


def test_row_weight_is_a_number_of_copies():
    """A row of weight 2 is the same as two rows."""
    rows = [Row([1, 2], [3, 4]), Row([5, 6], [7], episode=1), Row([5, 6], [7], episode=2)]
    twice, once = build(rows), build(rows[:2])
    weighted = once.with_columns(weight=np.array([1.0, 2.0]))
    advantage = np.array([1.0, -0.5, -0.5])
    results = []
    for graph, a in ((twice, advantage), (weighted, advantage[:2])):
        graph = graph.with_token_columns(old_logprob=np.full(len(graph.tokens.ids), -3.0))
        model = tiny_model()
        metrics = update(frozen_learner(model), graph, Credit.of(a), UpdateConfig(), LOSS, temperature=1.0)
        results.append((metrics["loss"], metrics["entropy"], gradient(model)))
    assert results[0][0] == pytest.approx(results[1][0], abs=1e-12)
    assert results[0][1] == pytest.approx(results[1][1], abs=1e-12)
    torch.testing.assert_close(results[0][2], results[1][2])


def test_token_advantage_replaces_the_step():
    graph = noisy(chains(3), 3)
    per_token = np.random.default_rng(0).normal(size=len(graph.tokens.ids))
    model = tiny_model()
    credit = Credit.of(np.ones(len(graph)), token_advantage=per_token)
    learner = frozen_learner(model)
    metrics = update(learner, graph, credit, UpdateConfig(), loss("ppo_clip", dual_clip=None), temperature=1.0)
    expected, count = 0.0, 0
    for row in range(len(graph)):
        for s, logprob, _ in plain_tokens(model, graph, row):
            ratio = (logprob - graph.tokens.columns["old_logprob"][s]).exp().item()
            expected -= min(per_token[s] * ratio, per_token[s] * min(max(ratio, 0.8), 1.2))
            count += 1
    assert metrics["loss"] == pytest.approx(expected / count, abs=1e-7)


@pytest.mark.parametrize("make", GRAPHS)
def test_cloning_is_plain_cross_entropy(make):
    graph = make(5).with_columns(weight=np.random.default_rng(5).integers(0, 3, len(make(5))).astype(float))
    model = tiny_model()
    metrics = clone(frozen_learner(model), graph, UpdateConfig(max_tokens=140))
    packed = gradient(model)
    model.zero_grad()
    weight = graph.weight
    terms = [-weight[r] * x for r in range(len(graph)) for _, x, _ in plain_tokens(model, graph, r)]
    tokens = sum(weight[r] * counted(graph, r) for r in range(len(graph)))
    slow = torch.stack(terms).sum() / tokens
    slow.backward()
    assert metrics["loss"] == pytest.approx(slow.item(), abs=1e-7)
    torch.testing.assert_close(packed, gradient(model), rtol=1e-5, atol=1e-6)


def test_what_an_observation_says_next_is_never_trained():
    """Exactly zero gradient with respect to observation tokens as targets.

    The rows of an untied head have a gradient of their own for each token of the vocabulary. With allowed
    sets that never hold a token, that token's row gets no gradient, though it stands in every prompt.
    """
    config = LlamaConfig(**SMALL, **HEADS, tie_word_embeddings=False, initializer_range=0.3)
    model = tiny_model(config=config)
    prompt_only, answers = 9, [[2, 3], [4, 5]]
    rows = [
        Row([1, prompt_only], [2, 4], allowed=answers),
        Row([prompt_only, prompt_only], [3, 5], 0, None, 0, 0, turn=1, allowed=answers),
    ]
    graph = build(rows).with_token_columns(old_logprob=np.full(8, -1.0))
    update(
        frozen_learner(model),
        graph,
        Credit.of(np.array([1.0, -2.0])),
        UpdateConfig(),
        LOSS,
        temperature=1.0,
    )
    head = model.lm_head.weight.grad
    trained = sorted({t for a in answers for t in a})
    others = [t for t in range(VOCABULARY) if t not in trained]
    assert (head[others] == 0).all()
    assert (head[trained].abs().sum(1) > 0).all()


MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True}
FAMILIES = {  # an architecture of each family, and how its batches are packed
    "plain, tied (Llama)": ("tree", LlamaConfig(**SMALL, **HEADS, tie_word_embeddings=True, initializer_range=0.3)),
    "mixture of experts (Qwen3-MoE)": ("tree", Qwen3MoeConfig(**SMALL, **HEADS, **MOE, initializer_range=0.3)),
    "sliding window (Mistral)": ("paths", MistralConfig(**SMALL, **HEADS, sliding_window=4, initializer_range=0.3)),
    "sliding and full (Gemma 3)": (
        "paths",
        Gemma3TextConfig(
            **SMALL, **HEADS, sliding_window=4, layer_types=["sliding_attention", "full_attention"], pad_token_id=0
        ),
    ),
    "state space (Mamba)": (
        "paths",
        MambaConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, state_size=4),
    ),
    "linear and full attention (Qwen3-Next)": (
        "paths",
        Qwen3NextConfig(
            **SMALL,
            **HEADS,
            **MOE,
            shared_expert_intermediate_size=16,
            layer_types=["linear_attention", "full_attention"],
            linear_num_key_heads=2,
            linear_num_value_heads=2,
            linear_key_head_dim=4,
            linear_value_head_dim=4,
            initializer_range=0.3,
        ),
    ),
}


for _, _config in FAMILIES.values():
    _config._experts_implementation = "eager"  # the grouped kernels have no float64


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gets_its_packing_and_the_gradient_is_the_unpacked_one(family):
    packing, config = FAMILIES[family]
    graph = noisy(trees(2, size=4), 2)
    model = tiny_model(config=config)
    learner = Learner(loaded(model), OptimConfig())
    assert learner.network.sharing == packing
    assert (config.model_type in learner.note) == (packing == "paths")
    advantage = np.random.default_rng(2).normal(size=len(graph))
    rows = np.arange(len(graph))
    share = [1 / sum(counted(graph, row) for row in rows)] * len(rows)
    metrics, packed, slow, plain = both(model, graph, Credit.of(advantage), rows, advantage, share)
    assert metrics["loss"] == pytest.approx(slow.item(), rel=1e-5)
    torch.testing.assert_close(packed, plain, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_packing_of_a_family_is_the_same_in_bfloat16(family):
    packing, config = FAMILIES[family]
    found = network(tiny_model(config=config).to(torch.bfloat16))
    assert (found.sharing, bool(found.reason)) == (packing, packing == "paths")


def test_annotated_logprobs_make_the_first_ratio_one():
    graph = trees(4, restricted=True)
    learner = frozen_learner(tiny_model())
    graph, _ = annotate(graph, learner, UpdateConfig(max_tokens=100), temperature=0.5)
    metrics = update(learner, graph, Credit.of(np.ones(len(graph))), UpdateConfig(), LOSS, temperature=0.5)
    assert metrics["ratio"] == pytest.approx(1.0, abs=1e-12)
    assert metrics["clip_fraction"] == 0.0
