"""A loss brings its aggregation: what it was published with is the default of update.aggregation."""

import numpy as np
import pytest
import torch

from agentrl import catalogue
from agentrl.credit import Credit
from agentrl.settings import Settings
from agentrl.trainer import Learner, annotate
from agentrl.trainer.sections import OptimConfig, UpdateConfig
from tests.graph.graphs import Row, build, loaded, tiny_model
from tests.rollout.playing import WALK
from tests.toys.entries import loss
from tests.trainer.test_ratio_spans import chains, descended, off_policy

PUBLISHED = {
    "dr_grpo": ("seq-mean-token-sum-norm", "step"),
    "gmpo": ("seq-mean-token-mean", "step"),
    "gspo": ("seq-mean-token-mean", "step"),
    "luspo": ("seq-mean-token-sum", "step"),
    "sapo_soft": ("seq-mean-token-mean", "step"),
    "turn_ppo": ("seq-mean-token-mean", "episode"),
}  # all others: token-mean


def on_policy():
    """An answer of one token and an answer of three, at ratio 1."""
    graph = build([Row([1], [2]), Row([1], [3, 4, 5], episode=1, turn=0)])
    return annotate(graph, Learner(loaded(tiny_model()), OptimConfig()), UpdateConfig(importance="none"), 1.0).graph


@pytest.mark.parametrize(
    ("name", "short", "long"),
    [
        # the loss is -A times the answer's share: of 4 tokens in all, 1 and 3
        ("ppo_clip", 1 / 4, 3 / 4),
        ("dapo", 1 / 4, 3 / 4),
        # of two answers, each token divided by the longest answer's 3 tokens: 1 / 2 / 3 and 3 / 2 / 3
        ("dr_grpo", 1 / 6, 1 / 2),
        # of two answers, each token divided by its answer's length
        ("gspo", 1 / 2, 1 / 2),
        ("sapo_soft", 1 / 2 * 2, 1 / 2 * 2),  # its gate is 4 sigmoid(0) = 2 at ratio 1
        # of two answers, their tokens summed
        ("luspo", 1 / 2, 3 / 2),
        # one loss per turn, shared by its n tokens, over the tokens of its episode: 1 / 1 / 2 and 1 / 3 / 2
        ("turn_ppo", 1 / 2, 1 / 6),
    ],
)
def test_the_default_by_hand(name, short, long):
    graph, entry = on_policy(), loss(name)
    for advantage, expected in (([1.0, 0.0], short), ([0.0, 1.0], long)):
        metrics, _ = descended(graph, Credit.of(np.array(advantage)), UpdateConfig(), entry)
        assert metrics["loss"] == pytest.approx(-expected, rel=1e-5)


@pytest.mark.parametrize("name", catalogue.names("loss"))
def test_the_default_is_the_loss_files_own(name):
    entry, graph = loss(name), off_policy(chains(5), 5)
    credit = Credit.of(np.random.default_rng(5).normal(size=len(graph)))
    how, sequence = PUBLISHED.get(name, ("token-mean", "step"))
    assert UpdateConfig().resolved(entry) == UpdateConfig(aggregation=how, sequence=sequence)
    found = [
        descended(graph, credit, config, entry)[1]
        for config in (UpdateConfig(), UpdateConfig(aggregation=how, sequence=sequence))
    ]
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "other", "options"), [("dr_grpo", "ppo_clip", {"dual_clip": None}), ("luspo", "gspo", {})]
)
def test_two_names_are_two_losses(name, other, options):
    graph = off_policy(chains(5), 5)
    credit = Credit.of(np.random.default_rng(5).normal(size=len(graph)))
    a, b = (descended(graph, credit, UpdateConfig(), entry)[1] for entry in (loss(name), loss(other, **options)))
    assert (a - b).abs().max() > 0.1 * b.abs().max()
    same = UpdateConfig(aggregation="token-mean", sequence="step")
    c, d = (descended(graph, credit, same, entry)[1] for entry in (loss(name), loss(other, **options)))
    torch.testing.assert_close(c, d, rtol=0, atol=0)


def test_a_sequence_of_the_loss_is_the_sequence_of_its_mean():
    assert UpdateConfig().resolved(loss("gspo", sequence="episode")).sequence == "episode"
    assert UpdateConfig(sequence="step").resolved(loss("gspo", sequence="episode")).sequence == "step"


def test_a_configuration_is_stored_resolved():
    written = Settings({"env": {"name": WALK}, "model": {"path": "somewhere"}, "loss": {"name": "luspo"}}).dump()
    assert written["update"]["aggregation"] == "seq-mean-token-sum" and written["update"]["sequence"] == "step"
    # a configuration stored before losses had defaults holds token-mean, and means it
    stored = {**written, "update": {**written["update"], "aggregation": "token-mean"}}
    assert Settings(stored).dump() == stored
