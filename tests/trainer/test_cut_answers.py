"""Answers that a token limit cut off: counted, marked in the graph, and left out by train_unfinished=false."""

from dataclasses import replace

import numpy as np
import pytest

from agentrl.credit import Credit
from agentrl.env import Limits, make_pool
from agentrl.graph import concatenate
from agentrl.rollout import Scripted, build_graph
from agentrl.rollout.batches import batch_metrics
from agentrl.trainer import Learner, annotate, update
from agentrl.trainer.policy_update import unfinished
from agentrl.trainer.sections import OptimConfig, UpdateConfig
from agentrl.types import Status
from tests.graph.graphs import Row, build, loaded, tiny_model
from tests.rollout.playing import FAULTY, entry, play_all, player, right
from tests.toys import faulty
from tests.toys.entries import loss


def cut_graph():
    """Rollout 0: two turns, the first cut; 1: one turn, cut; 2: whole; 3: a called agent's cut answer; 4: a limit."""
    rows = [
        Row([1, 2], [3, 4], columns={"cut": True}),
        Row([5], [6], 0, None, 0, 0, turn=1, columns={"terminated": True, "ending": Status.DONE}),
        Row([1, 2], [7], episode=1, columns={"cut": True, "terminated": True, "ending": Status.DONE}),
        Row([1, 2], [8], episode=2, columns={"terminated": True, "ending": Status.DONE}),
        Row([1, 3], [8], episode=3, rollout=2, columns={"cut": True, "caller": 3, "ending": Status.DONE}),
        Row([1, 2], [9], episode=4, columns={"truncated": True, "ending": Status.TURN_LIMIT}),
    ]
    own = [row.columns.pop("cut", False) for row in rows]
    return build(rows).with_columns(cut=np.array(own))


def test_which_rows_are_unfinished_by_hand():
    # a cut answer in the middle is left out alone, a cut last answer ends its rollout, a called agent's only itself
    np.testing.assert_array_equal(unfinished(cut_graph()), [True, False, True, False, True, True])


@pytest.mark.parametrize("train_unfinished", [True, False])
def test_cut_answers_are_trained_only_if_the_option_says_so(train_unfinished):
    learner, config = Learner(loaded(tiny_model()), OptimConfig()), UpdateConfig(train_unfinished=train_unfinished)
    graph, _ = annotate(cut_graph(), learner, config, 1.0)
    metrics = update(learner, graph, Credit.of(np.ones(6)), config, loss("ppo_clip"), temperature=1.0)
    assert metrics["dropped_rows"] == (0 if train_unfinished else 4)
    assert metrics["decision_tokens"] == (7 if train_unfinished else 2)


class Cut(Scripted):
    """Says "right", and every second answer is cut off."""

    calls = 0

    async def generate(self, request):
        self.calls += 1
        made = await super().generate(request)
        return replace(made, finish="length" if self.calls % 2 else "stop")


@pytest.mark.parametrize("cut_turn", ["parse", "end"])
def test_cut_answers_of_rollouts_are_counted_and_marked(cut_turn):
    """With `limits.cut_turn=parse`, the default, a cut answer is played all the same."""
    on = entry(FAULTY)
    limits = Limits(turns=2, fault_share=1, cut_turn=cut_turn)
    by = player(on, make_pool(on, "inline"), policy=Cut(["right"]), limits=limits)
    records = play_all(by, [faulty.task(2)], copies=1)
    graph = build_graph(records)
    expected = {"parse": [True, False], "end": [True]}[cut_turn]
    np.testing.assert_array_equal(graph.column("cut"), expected)
    assert batch_metrics(records)["cut_share"] == np.mean(expected)
    whole = play_all(player(on, make_pool(on, "inline"), policy=right(), limits=limits), [faulty.task(2)], copies=1)
    assert batch_metrics(whole)["cut_share"] == 0 and not build_graph(whole).has("cut")


def test_a_graph_without_cut_answers_joins_one_with_them():
    graph = cut_graph()
    plain = build([Row([1], [2])])
    joined = concatenate([graph, plain])
    np.testing.assert_array_equal(joined.column("cut"), [*graph.column("cut"), False])
