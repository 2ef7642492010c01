"""Ratios that span several tokens: what shares one is never divided between micro-batches, and where a step lies in
several episodes each of them has its own."""

import functools

import numpy as np
import pytest
import torch

from agentrl import catalogue
from agentrl.credit import Credit
from agentrl.credit.assignment import pool
from agentrl.graph import path_lengths, paths
from agentrl.model import microbatches, pack
from agentrl.trainer import Learner, Regularizers, update
from agentrl.trainer.sections import OptimConfig, UpdateConfig
from tests.graph.graphs import Row, build, chains, gradient, loaded, partial, plain_tokens, tiny_model, trees, windows
from tests.toys.entries import loss, regularizer

EPISODE = {name: {"sequence": "episode"} for name in ("gspo", "gmpo", "luspo")}
CASES = [
    *((name, {}) for name in catalogue.names("loss")),
    *EPISODE.items(),
    ("gspo", {"form": "token"}),
    ("turn_ppo", {"geometric": True}),
    ("m2po", {"threshold": 0.004}),  # masks some tokens: the second moment of the log-ratios is 0.01
]


def off_policy(graph, seed: int):
    """Old log-probs near those of the tiny model, so that ratios differ inside and between steps."""
    old, model = np.zeros(len(graph.tokens.ids)), tiny_model()
    with torch.no_grad():
        for row in range(len(graph)):
            for s, logprob, _ in plain_tokens(model, graph, row):
                old[s] = logprob.item()
    return graph.with_token_columns(old_logprob=old + np.random.default_rng(seed).normal(0, 0.1, len(old)))


@functools.cache
def off_policy_of(make, seed: int):
    """`off_policy` of the graph that a function makes of a seed."""
    return off_policy(make(seed), seed)


def descended(graph, credit, config, entry, terms=()):
    """Metrics and gradient of one update that leaves the weights alone; `terms` are regularizers."""
    learner = Learner(loaded(tiny_model()), OptimConfig())
    learner.step = lambda: (0.0, False)
    regularizers = Regularizers(terms)
    for one in regularizers.instances[:1]:
        one.add(np.full(8, 2.0))
    metrics = update(learner, graph, credit, config, entry, temperature=1.0, regularizers=regularizers)
    return metrics, gradient(learner.model)


def too_little(graph, whole_episodes: bool) -> int:
    """A micro-batch's tokens that do not suffice for all of the graph, though for what must stay together."""
    if not whole_episodes:
        return int(path_lengths(graph.tokens).max())
    return len(pack(graph.tokens, np.arange(len(graph)), np.ones(len(graph.tokens.ids)))) - 1


@pytest.mark.parametrize(
    ("make", "aggregation"),
    [
        (chains, "token-mean"),
        (windows, "seq-mean-token-mean"),
        pytest.param(chains, "seq-mean-token-mean", marks=pytest.mark.slow),
        pytest.param(windows, "token-mean", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda x: x if isinstance(x, str) else "-".join(map(str, x)))
def test_micro_batches_equal_one(name, options, make, aggregation):
    entry = loss(name, **options)
    whole = getattr(entry.config, "whole_episodes", False)
    assert whole == (options.get("sequence") == "episode")
    graph = off_policy_of(make, 5)
    credit = Credit.of(np.random.default_rng(5).normal(size=len(graph)))
    found = []
    for max_tokens in (too_little(graph, whole), 100_000):
        config = UpdateConfig(max_tokens=max_tokens, aggregation=aggregation, sequence="episode")
        found.append(descended(graph, credit, config, entry))
    assert found[0][0]["microbatches"] > found[1][0]["microbatches"] == 1
    assert found[0][0]["loss"] == pytest.approx(found[1][0]["loss"], abs=1e-7)
    assert found[0][0]["ratio"] == pytest.approx(found[1][0]["ratio"], abs=1e-7)
    assert found[1][1].abs().max() > 1e-4
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("make", [chains, windows])
@pytest.mark.parametrize("sequence", ["step", "episode"])
def test_gspo_in_pieces_is_the_loss_of_its_paper(sequence, make):
    """-(1/sequences) sum of A s with s = exp(mean log-ratio), written sequence by sequence."""
    graph = off_policy_of(make, 2)
    key = graph.episode if sequence == "episode" else np.arange(len(graph))
    advantage = np.random.default_rng(2).normal(size=len(graph))[key]  # one a sequence
    entry = loss("gspo", sequence=sequence, clip_low=1.0, clip_high=100.0)
    config = UpdateConfig(
        max_tokens=too_little(graph, sequence == "episode"), aggregation="seq-mean-token-mean", sequence=sequence
    )
    metrics, packed = descended(graph, Credit.of(advantage), config, entry)
    model, total = tiny_model(), torch.zeros((), dtype=torch.float64)
    for k in np.unique(key):
        apart = [
            x - graph.tokens.columns["old_logprob"][s]
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
        steps = [set(part.row) for part in microbatches(batch, int(path_lengths(graph.tokens).max()))]
        assert sum(map(len, steps)) == len(set().union(*steps)) == len(set(batch.row))


# A rollout that goes on in a second episode: no step has two children, and yet a path is not an episode.
HANDED_OVER = [Row([1, 2], [3]), Row([4], [5], 0, None, 0, 1, 0, turn=1)]


def expanded(graph, on):
    """Each root-to-leaf path as an episode of its own, tokens and all."""
    tokens, rows = graph.tokens, []
    for i, (row, leaf) in enumerate(zip(on.row.tolist(), on.leaf.tolist(), strict=True)):
        start, stop = tokens.offsets[row : row + 2]
        prompt = int((~tokens.sampled[start:stop]).sum())
        ids = tokens.ids[start:stop].tolist()
        above = i - 1 if graph.parent[row] >= 0 else -1
        new = Row(
            ids[:prompt], ids[prompt:], above, None, above, leaf, leaf, int(graph.group[row]), int(graph.turn[row])
        )
        rows.append(new)
    index = np.concatenate([np.arange(*tokens.offsets[row : row + 2]) for row in on.row])
    columns = {name: graph.tokens.columns[name][index] for name in ("old_logprob", "ref_logprob")}
    flat = {name: graph.columns[name][on.row] for name in ("weight", "valid")}
    return build(rows).with_columns(**flat).with_token_columns(**columns)


TERMS = {"kl_coef": 0.3, "entropy_coef": 0.2}
BESIDE = (regularizer("entropy_band", coef=0.1, differentiable=True), regularizer("likelihood_guard", coef=0.5))
SUMS = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
ON_TREES = [
    *((name, options, how) for name, options in EPISODE.items() for how in SUMS),
    ("gspo", {"form": "token", "sequence": "episode"}, "seq-mean-token-mean"),
    *((name, {}, "seq-mean-token-mean") for name in ("ppo_clip", "turn_ppo", "sapo_soft", "cispo")),
    ("dr_grpo", {}, "seq-mean-token-sum-norm"),
]


@functools.cache
def on_tree(which: str):
    """A graph with old and reference log-probs, weights that differ, and a step that is not valid; with its paths, and
    the rows of these paths as episodes of their own."""
    made = {"two": lambda: trees(0), "one": lambda: trees(3, 1, 8), "handed over": lambda: build(HANDED_OVER)}
    graph, noise = off_policy(made[which](), 1), np.random.default_rng(7)
    reference = graph.tokens.columns["old_logprob"] + noise.normal(0, 0.3, len(graph.tokens.ids))
    graph = graph.with_token_columns(ref_logprob=reference).with_columns(
        weight=noise.choice([0.5, 1.0, 2.0], len(graph)),
        valid=np.arange(len(graph)) != 1,
    )
    on = paths(graph)
    return graph, on, expanded(graph, on)


@pytest.mark.parametrize("which", ["two", pytest.param("one", marks=pytest.mark.slow), "handed over"])
@pytest.mark.parametrize(("name", "options", "aggregation"), ON_TREES)
def test_whole_episodes_on_a_tree_are_its_expanded_paths(name, options, aggregation, which):
    """Ratios and means over episodes: loss and gradient of the tree equal those of training on root-to-leaf rows, with
    KL, entropy, EPO and LLDS on; weights that differ, a path that is not used, and steps that are not valid."""
    graph, on, rows = on_tree(which)
    wide = {"clip_low": 0.3, "clip_high": 0.3} if name in EPISODE else {}
    advantage = np.random.default_rng(8).normal(size=len(on.row))  # every copy has an advantage of its own
    used = on.leaf != 2  # [P rows]
    credit = Credit.of(advantage, assigned=used)
    config = UpdateConfig.model_validate(
        {**TERMS, "aggregation": aggregation, "sequence": "episode", "train_invalid": False}
    )
    entry = loss(name, **options, **wide)
    tree = descended(graph, pool(credit, on, len(graph)), config, entry, BESIDE)
    plain = descended(rows, credit, config, entry, BESIDE)
    assert tree[0]["loss"] == pytest.approx(plain[0]["loss"], abs=1e-7)
    for name in ("ratio", "clip_fraction", "kl_ref", "entropy", "epo_band", "llds"):
        assert tree[0][name] == pytest.approx(plain[0][name], abs=1e-7)
    assert plain[0]["epo_band"] > 0
    assert plain[1].abs().max() > 1e-4
    torch.testing.assert_close(tree[1], plain[1], rtol=1e-5, atol=1e-7)


def test_mini_batches_of_trees_are_those_of_their_paths():
    """Whole trees share an optimiser step, so that each mini-batch is the expanded paths of its trees."""
    graph = off_policy(trees(4, roots=4, size=5), 4)
    graph = graph.with_token_columns(ref_logprob=graph.tokens.columns["old_logprob"])
    on = paths(graph)
    credit = Credit.of(np.random.default_rng(0).normal(size=len(on.row)))
    split = UpdateConfig(aggregation="seq-mean-token-mean", sequence="episode", minibatches=2, unit="rollout")
    entry = loss("gspo", sequence="episode", clip_low=0.3, clip_high=0.3)
    metrics, _ = descended(graph, pool(credit, on, len(graph)), split, entry)
    assert metrics["optimizer_steps"] == 2
    assert metrics["decision_tokens"] == sum(len(plain_tokens(tiny_model(), graph, r)) for r in range(len(graph)))


def test_credit_of_nodes_is_divided_among_their_paths():
    """The root, on two paths of length-2 and length-1 episodes below it, counts half in each path's ratio.

    On-policy the ratio is 1 and GSPO's loss is -(mass on the path) / decisions, summed over paths: with masses 2 at the
    root and 1 at each leaf, one token a step, mean over the 2 paths: -(1/2) ((2/2 + 1) / 2 + (2/2 + 1) / 2) = -1.
    """
    rows = [Row([1], [2]), Row([3], [4], 0, None, 0, 0, turn=1), Row([5], [6], 0, None, 0, 1, 0, turn=1)]
    graph = build(rows)
    old = np.zeros(len(graph.tokens.ids))
    for row in range(3):
        for s, logprob, _ in plain_tokens(tiny_model(), graph, row):
            old[s] = logprob.item()
    graph = graph.with_token_columns(old_logprob=old)
    config = UpdateConfig(aggregation="seq-mean-token-mean", sequence="episode")
    metrics, _ = descended(graph, Credit.of(np.array([2.0, 1, 1])), config, loss("gspo", sequence="episode"))
    assert metrics["loss"] == pytest.approx(-1.0, abs=1e-7)


def test_an_episode_that_does_not_fit_says_so():
    graph = off_policy(windows(0), 0)
    config = UpdateConfig(max_tokens=int(path_lengths(graph.tokens).max()))
    with pytest.raises(ValueError, match=r"raise update\.max_tokens"):
        descended(graph, Credit.of(np.ones(len(graph))), config, loss("gspo", sequence="episode"))
