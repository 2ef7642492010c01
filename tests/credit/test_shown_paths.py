"""Demonstrations without a policy gradient in a branched graph, for losses over whole paths, by hand."""

import numpy as np
import pytest

from agentrl.config import resolve
from agentrl.credit import CreditMethod, assign, with_imitation
from agentrl.graph import DEMO, PLAYED
from agentrl.trainer.path_weights import of_paths
from tests.algorithms.credit.steps import chain, graph_of


def test_they_have_no_credit_and_count_once_where_an_update_imitates_them():
    # a has two steps; b and c go on from its first one. d, with the best score, is shown.
    rows = [*chain("t", "a", [0.0, 1.0])]
    rows += [dict(row, parent=["a", 0], turn=1) for name in "bc" for row in chain("t", name, [0.0])]
    rows += chain("t", "d", [0.0, 2.0])
    graph = graph_of(rows)
    shown = np.array([graph.names["episode"][e] == "d" for e in graph.episode])
    assert shown.sum() == 2
    graph = graph.with_columns(
        kind=np.where(shown, DEMO, PLAYED).astype(np.int8), in_gradient=~shown, in_statistics=np.ones(len(graph), bool)
    )
    credit = assign(resolve(CreditMethod, {"name": "rloo"}), graph)
    use = np.ones(len(graph))
    copies = of_paths(graph, credit, use)
    of_shown = shown[copies.row]
    assert not any(x[of_shown].any() for x in (copies.positive, copies.negative, copies.weight))
    # of the played: scores 1, 0, 0; with 2 of d. RLOO of a: 1 - 2/3; of b and c: 0 - 1
    signed = (copies.positive - copies.negative)[~of_shown]
    assert sorted(signed) == pytest.approx([-1.0] * 4 + [1 / 3] * 2)
    told = of_paths(graph, with_imitation(credit, graph), use)
    of_shown = shown[told.row]
    assert told.weight[of_shown].tolist() == [1.0, 1.0] and told.path[of_shown].tolist() == [told.path[of_shown][0]] * 2
    assert set(told.path[of_shown]).isdisjoint(told.path[~of_shown])
    assert sorted((told.positive - told.negative)[~of_shown]) == pytest.approx(sorted(signed))
    assert not told.positive[of_shown].any() and not told.negative[of_shown].any()
