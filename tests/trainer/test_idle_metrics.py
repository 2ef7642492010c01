"""The metrics of an update are means over all decisions, also of rows without a gradient, whatever the loss."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from agentrl.credit import Credit
from agentrl.graph import decisions, token_rows
from agentrl.trainer import Learner, annotate, update
from agentrl.trainer.local_passes import logprobs, token_entropies
from agentrl.trainer.sections import OptimConfig, UpdateConfig
from tests.graph.graphs import Row, build, chains, loaded, tiny_model, trees
from tests.toys.entries import loss

NAMES = ("entropy", "ratio", "approx_kl", "clip_fraction")
CLIP = loss("ppo_clip")
# The same loss, whose idle rows get the whole forward and backward pass.
EVERY = CLIP._replace(hooks=replace(CLIP.hooks, zero_without_credit=False))


def made() -> Learner:
    return Learner(loaded(tiny_model()), OptimConfig(lr=0.02))


def sparse(graph) -> Credit:
    """Credit on the first group only."""
    return Credit.of(np.where(graph.group == graph.group[0], np.where(np.arange(len(graph)) % 2, 1.0, -1.0), 0.0))


def improved(graph, entry, config: UpdateConfig, old_entropy: bool = True) -> tuple[dict[str, float], torch.Tensor]:
    learner = made()
    graph, _ = annotate(graph, learner, config, 1.0, old_entropy=old_entropy)
    metrics = update(learner, graph, sparse(graph), config, entry, temperature=1.0)
    return metrics, torch.cat([p.detach().reshape(-1) for p in learner.model.parameters()])


@pytest.mark.parametrize("make", [chains, trees])
@pytest.mark.parametrize(
    "steps",
    [pytest.param({}, marks=pytest.mark.slow), {"minibatches": 2, "epochs": 2}, {"epochs": 3, "max_tokens": 60}],
)
@pytest.mark.parametrize("old", ["trainer", "engine"])
@pytest.mark.parametrize("old_entropy", [False, True])
def test_idle_rows_count_as_if_they_were_trained(make, steps, old, old_entropy):
    config = UpdateConfig(**steps, old_logprob=old)
    (found, moved), (wanted, also) = (
        improved(make(3), entry, config, old_entropy and entry is CLIP) for entry in (CLIP, EVERY)
    )
    assert found["idle_rows"] > 0 == wanted["idle_rows"]
    for name in NAMES:
        assert found[name] == pytest.approx(wanted[name], abs=1e-6), name
    torch.testing.assert_close(moved, also, atol=1e-6, rtol=0)
    assert found["decision_tokens"] < wanted["decision_tokens"]


@pytest.mark.parametrize("name", ["ppo_clip", "reinforce", "dr_grpo", "gspo", "luspo"])
def test_the_entropy_is_that_of_the_policy_over_all_decisions(name):
    """By a plain mean over the decisions, whatever the loss weighs and averages."""
    graph, learner = chains(4), made()
    rows = np.arange(len(graph))
    entropy = token_entropies(learner.network, graph, rows, temperature=1.0, max_tokens=10_000)
    graph, _ = annotate(graph, learner, UpdateConfig(), 1.0)
    metrics = update(learner, graph, sparse(graph), UpdateConfig(), loss(name), temperature=1.0)
    assert metrics["entropy"] == pytest.approx(entropy[decisions(graph.tokens)].mean(), abs=1e-6)
    assert metrics["ratio"] == pytest.approx(1.0, abs=1e-6)


def test_mini_batches_count_by_their_decisions_by_hand():
    """Two groups in two mini-batches: one decision and three; a learning rate of 0, so the policy stays."""
    graph = build([Row([1, 2], [3]), Row([4, 5], [6, 7, 8], episode=1, group=1)])
    learner = Learner(loaded(tiny_model()), OptimConfig(lr=0.0))
    entropy = token_entropies(learner.network, graph, np.arange(2), temperature=1.0, max_tokens=100)
    graph, _ = annotate(graph, learner, UpdateConfig(), 1.0)
    metrics = update(learner, graph, Credit.of(np.ones(2)), UpdateConfig(minibatches=2), CLIP, temperature=1.0)
    assert metrics["optimizer_steps"] == 2
    assert metrics["entropy"] == pytest.approx(np.nanmean(entropy[decisions(graph.tokens)]))


@pytest.mark.parametrize("old_entropy", [False, True])
def test_constant_groups_have_metrics_and_move_nothing(old_entropy):
    learner, graph = made(), chains(2)
    before = {name: p.clone() for name, p in learner.model.named_parameters()}
    graph, _ = annotate(graph, learner, UpdateConfig(), 1.0, old_entropy=old_entropy)
    metrics = update(learner, graph, Credit.of(np.zeros(len(graph))), UpdateConfig(), CLIP, temperature=1.0)
    assert metrics["optimizer_steps"] == 0 and metrics["idle_rows"] == len(graph)
    assert metrics["entropy"] > 0.1 and metrics["ratio"] == pytest.approx(1.0) and metrics["clip_fraction"] == 0
    assert all(torch.equal(before[name], p) for name, p in learner.model.named_parameters())


def test_the_annotation_gives_log_probs_and_entropies_in_one_pass():
    graph, learner = trees(2), made()
    calls = []
    hidden = type(learner.network).hidden
    rows = np.arange(len(graph))
    wanted = [f(learner.network, graph, rows, temperature=1.0, max_tokens=10_000) for f in (logprobs, token_entropies)]
    object.__setattr__(
        learner.network,
        "__class__",
        type(
            "Counting",
            (type(learner.network),),
            {"hidden": lambda self, batch: (calls.append(1), hidden(self, batch))[1]},
        ),
    )
    annotated, _ = annotate(graph, learner, UpdateConfig(), 1.0, entropies=True, old_entropy=True)
    assert len(calls) == 1
    sampled = np.isin(token_rows(graph.tokens), rows) & graph.tokens.sampled
    for name, values in zip(("old_logprob", "old_entropy"), wanted, strict=True):
        np.testing.assert_array_equal(annotated.token_column(name)[sampled], values[sampled])
    metrics = update(learner, annotated, Credit.of(np.zeros(len(graph))), UpdateConfig(), CLIP, temperature=1.0)
    assert len(calls) == 1 and metrics["entropy"] > 0  # the update computed no pass


@pytest.mark.parametrize("old_entropy", [False, True])
def test_rows_that_are_left_out_count_too(old_entropy):
    """Also if no row is left to train; the metrics are those of an update that trains them."""
    graph = chains(2).with_columns(valid=np.arange(len(chains(2))) % 2 == 0)
    found = {}
    for valid in ("every", "some", "none"):
        learner, config = made(), UpdateConfig(train_invalid=valid == "every")
        marked = graph if valid != "none" else graph.with_columns(valid=np.zeros(len(graph), bool))
        annotated, _ = annotate(marked, learner, config, 1.0, old_entropy=old_entropy)
        found[valid] = update(learner, annotated, sparse(graph), config, CLIP, temperature=1.0)
    assert found["some"]["dropped_rows"] > 0 and found["none"]["dropped_rows"] == len(graph)
    for valid in ("some", "none"):
        for name in NAMES:
            assert found[valid][name] == pytest.approx(found["every"][name], abs=1e-6), (valid, name)
    assert found["none"]["optimizer_steps"] == 0
