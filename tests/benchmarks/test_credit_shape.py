"""Shapes of worlds by which the error of credit methods is predicted."""

import json

import numpy as np
import pytest

from benchmarks import credit_shape as bench
from benchmarks.credit_gradient import chains, exact


@pytest.mark.parametrize("wrong", ["lost", "stay", "back"])
def test_a_tuned_world_is_won_as_often_as_it_says(wrong):
    mdp = bench.tuned(bench.Shape(4, 8, wrong, False, 8))
    assert bench.arrives(mdp) == pytest.approx(0.3, abs=1e-6)
    graph = chains(mdp, 500, exact(mdp), np.random.default_rng(0), copies=8)
    assert bench.looks(graph)["success"] == pytest.approx(0.3, abs=0.05)


def test_a_graph_looks_as_counted_by_hand():
    mdp = bench.world(bench.Shape(3, 6, "back", False, 2), 0.0)
    graph = chains(mdp, 1, exact(mdp), np.random.default_rng(0), copies=2)
    one, other = (graph.state[graph.rollout == rollout].tolist() for rollout in (0, 1))
    found = bench.looks(graph)
    assert found["steps"] == (len(one) + len(other)) / 2 and found["copies"] == 2
    assert found["revisits"] == pytest.approx(1 - (len({*one}) + len({*other})) / (len(one) + len(other)))
    shared = [state in {*other} for state in one] + [state in {*one} for state in other]
    assert found["shared"] == pytest.approx(np.mean(shared))


def test_an_estimate_of_nothing_has_no_direction():
    found = np.array([[0.0, 0.0], [3.0, 4.0]])
    assert bench.cosines(found, np.array([6.0, 8.0])).tolist() == pytest.approx([0.0, 1.0])


def test_step_level_credit_is_predicted_where_episodes_are_long():
    # an exact critic errs least, and GRPO errs more in 50 steps than in 8 of the same kind
    short, long = (bench.measure(bench.Shape(r, h, "stay", False, 4), 8000, 0) for r, h in ((4, 8), (20, 50)))
    assert long.cosine["grpo"][0] < short.cosine["grpo"][0] - 0.2
    assert long.cosine["turn_ppo, exact critic"][0] > long.cosine["grpo"][0] + 0.2


def test_the_stored_table_holds_every_shape_and_names_the_nearest():
    lines = json.loads((bench.RESULTS / "credit_shape.json").read_text())
    assert [line["name"] for line in lines] == [shape.name for shape in bench.SHAPES]
    for line in lines:
        assert bench.nearest(line["like"], lines)[0]["name"] == line["name"]
