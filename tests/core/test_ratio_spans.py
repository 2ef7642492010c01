"""Ratios that span several tokens: what shares one is never divided between micro-batches, nor defined where a step
lies in several episodes."""

import importlib

import numpy as np
import pytest
import torch

from agentrl import catalogue
from agentrl.credit import Credit
from agentrl.learner import Learner, OptimConfig
from agentrl.pack import longest_path, microbatches, pack
from agentrl.update import UpdateConfig, update
from tests.core.graphs import Row, build, chains, gradient, loaded, partial, plain_tokens, tiny_model, trees, windows

gspo = importlib.import_module("agentrl.algorithms.loss.gspo")
EPISODE = {name: {"sequence": "episode"} for name in ("gspo", "gmpo", "luspo")}
CASES = [
    *((name, {}) for name in catalogue.names("loss")),
    *EPISODE.items(),
    ("gspo", {"form": "token"}),
    ("turn_ppo", {"mean": True}),
]


def off_policy(graph, seed: int):
    """Old log-probs near those of the tiny model, so that ratios differ inside and between steps."""
    old, model = np.zeros(len(graph.tokens.ids)), tiny_model()
    for row in range(len(graph)):
        for s, logprob, _ in plain_tokens(model, graph, row):
            old[s] = logprob.item()
    return graph.with_columns(old_logprob=old + np.random.default_rng(seed).normal(0, 0.1, len(old)))


def descended(graph, credit, config, module, loss_config):
    """Metrics and gradient of one update that leaves the weights alone."""
    learner = Learner(loaded(tiny_model()), OptimConfig())
    learner.step = lambda: (0.0, False)
    metrics = update(learner, graph, credit, config, module, loss_config, temperature=1.0)
    return metrics, gradient(learner.model)


def too_little(graph, whole_episodes: bool) -> int:
    """A micro-batch's tokens that do not suffice for all of the graph, though for what must stay together."""
    if not whole_episodes:
        return longest_path(graph.tokens)
    return len(pack(graph.tokens, np.arange(len(graph)), np.ones(len(graph.tokens.ids)))) - 1


@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean"])
@pytest.mark.parametrize("make", [chains, windows])
@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda x: x if isinstance(x, str) else "-".join(map(str, x)))
def test_micro_batches_equal_one(name, options, make, aggregation):
    module = catalogue.load("loss", name)
    loss_config = module.Config(**options)
    whole = getattr(loss_config, "whole_episodes", False)
    assert whole == (options.get("sequence") == "episode")
    graph = off_policy(make(5), 5)
    credit = Credit.of(np.random.default_rng(5).normal(size=len(graph)))
    found = []
    for max_tokens in (too_little(graph, whole), 100_000):
        config = UpdateConfig(max_tokens=max_tokens, aggregation=aggregation, sequence="episode")
        found.append(descended(graph, credit, config, module, loss_config))
    assert found[0][0]["microbatches"] > found[1][0]["microbatches"] == 1
    assert found[0][0]["loss"] == pytest.approx(found[1][0]["loss"], abs=1e-7)
    assert found[0][0]["ratio"] == pytest.approx(found[1][0]["ratio"], abs=1e-7)
    assert found[1][1].abs().max() > 1e-4
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("make", [chains, windows])
@pytest.mark.parametrize("sequence", ["step", "episode"])
def test_gspo_in_pieces_is_the_loss_of_its_paper(sequence, make):
    """-(1/sequences) sum of A s with s = exp(mean log-ratio), written sequence by sequence."""
    graph = off_policy(make(2), 2)
    key = graph.episode if sequence == "episode" else np.arange(len(graph))
    advantage = np.random.default_rng(2).normal(size=len(graph))[key]  # one a sequence
    loss_config = gspo.Config(sequence=sequence, clip_low=1.0, clip_high=100.0)
    config = UpdateConfig(
        max_tokens=too_little(graph, sequence == "episode"), aggregation="seq-mean-token-mean", sequence=sequence
    )
    metrics, packed = descended(graph, Credit.of(advantage), config, gspo, loss_config)
    model, total = tiny_model(), torch.zeros((), dtype=torch.float64)
    for k in np.unique(key):
        apart = [
            x - graph.columns["old_logprob"][s]
            for row in np.flatnonzero(key == k)
            for s, x, _ in plain_tokens(model, graph, row)
        ]
        total = total - advantage[key == k][0] * torch.stack(apart).mean().exp() / len(np.unique(key))
    total.backward()
    assert metrics["microbatches"] > 1
    assert metrics["loss"] == pytest.approx(total.item(), abs=1e-7)
    torch.testing.assert_close(packed, gradient(model), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sharing", ["tree", "paths"])
@pytest.mark.parametrize("make", [chains, windows, partial, trees])
def test_a_step_is_never_divided(make, sharing):
    for seed in range(10):
        graph = make(seed)
        rows = np.flatnonzero(np.random.default_rng(seed).random(len(graph)) < 0.8)
        batch = pack(graph.tokens, rows, np.ones(len(graph.tokens.ids)), sharing=sharing)
        steps = [set(part.step) for part in microbatches(batch, longest_path(graph.tokens))]
        assert sum(map(len, steps)) == len(set().union(*steps)) == len(set(batch.step))


# A rollout that goes on in a second episode: no step has two children, and yet a path is not an episode.
HANDED_OVER = [Row([1, 2], [3]), Row([4], [5], 0, None, 0, 1, 0, turn=1)]


@pytest.mark.parametrize("graph", [trees(0), build(HANDED_OVER)], ids=["branched", "handed over"])
def test_episode_sequences_are_refused_where_steps_branch(graph):
    graph = graph.with_columns(old_logprob=np.zeros(len(graph.tokens.ids)))
    credit = Credit.of(np.ones(len(graph)))
    for name, options in EPISODE.items():
        module = catalogue.load("loss", name)
        with pytest.raises(ValueError, match=r"loss\.sequence=step"):
            descended(graph, credit, UpdateConfig(), module, module.Config(**options))
    for aggregation in ("seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"):
        config = UpdateConfig(aggregation=aggregation, sequence="episode")
        with pytest.raises(ValueError, match=r"update\.sequence=step"):
            descended(graph, credit, config, gspo, gspo.Config())


def test_an_episode_that_does_not_fit_says_so():
    graph = off_policy(windows(0), 0)
    config = UpdateConfig(max_tokens=longest_path(graph.tokens))
    with pytest.raises(ValueError, match=r"raise update\.max_tokens"):
        descended(graph, Credit.of(np.ones(len(graph))), config, gspo, gspo.Config(sequence="episode"))
