"""GraphGPO, with networkx as the oracle of distances."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from agentrl.graph import graph_values
from tests.algorithms.credit.steps import advantage, by, chain, credit_of, forest, normal, scores


def finished(rows):
    """Every episode's last row terminated."""
    ends = {row["episode"]: i for i, row in enumerate(rows)}
    return [row | {"terminated": i in ends.values(), "truncated": False} for i, row in enumerate(rows)]


def test_by_hand():
    # a: s -> t -> success. b: s -> u, failed. d(t) = 1, d(s) = 2, u unreachable: 2 + 1 = 3. Returns 10 *
    # 0.1^d(next): a: 10 * 0.1^1 = 1, 10 * 0.1^0 = 10; b: s -> u: 10 * 0.1^3 = 0.01; u -> nowhere: 0.01.
    rows = finished(chain("g", "a", [0, 1], state=["s", "t"]) + chain("g", "b", [0, 0], state=["s", "u"]))
    out = credit_of("graph_gpo", rows, std="none")
    assert out["distance"] == [2, 1, 2, 3]
    np.testing.assert_allclose(out["step_return"], [1, 10, 0.01, 0.01])
    # step group s: 1 and 0.01, mean 0.505; episode rows 1, 1, 0, 0, mean 0.5
    np.testing.assert_allclose(out["advantage"], [0.495 + 0.5, 0.5, -0.495 - 0.5, -0.5])


def test_normalised_distance():
    # 10 * 0.1^(d(next) - d + 1): on the shortest path always 10
    rows = finished(chain("g", "a", [0, 0, 1], state=["s", "t", "u"]))
    out = credit_of("graph_gpo", rows, normalize_distance=True)
    np.testing.assert_allclose(out["step_return"], [10, 10, 10])


def test_without_success_every_distance_is_one():
    rows = finished(chain("g", "a", [0, 0], state=["s", "t"]))
    assert credit_of("graph_gpo", rows)["distance"] == [1, 1]


@pytest.mark.parametrize("seed", range(8))
def test_equals_networkx_and_a_loop(seed):
    rows = finished(forest(seed, states=5))
    ends = {row["episode"]: i for i, row in enumerate(rows)}
    score = scores(rows)
    after = [
        ("success" if score[i] > 0 else "nowhere") if i in ends.values() else rows[i + 1]["state"]
        for i in range(len(rows))
    ]
    gain = np.zeros(len(rows))
    for indices in by(rows, "group").values():
        net = nx.DiGraph((after[i], rows[i]["state"]) for i in indices)
        known = nx.single_source_shortest_path_length(net, "success") if "success" in net else {"success": 0}
        far = max(known.values()) + 1
        for i in indices:
            gain[i] = 10 * 0.2 ** known.get(after[i], far)
    step = np.zeros(len(rows))
    for indices in by(rows, "group", "state").values():
        if len(indices) > 1:
            step[indices] = normal([gain[i] for i in indices])
    expected = step + advantage("grpo", rows, unit="step")
    np.testing.assert_allclose(advantage("graph_gpo", rows, discount=0.2), expected, atol=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30), st.integers(0, 9))
def test_distances_equal_networkx(edges, goal):
    u, v = np.array(edges).T
    fixed = np.full(10, np.nan)
    fixed[goal] = 0.0
    net = nx.DiGraph((b, a) for a, b in edges)
    net.add_node(goal)
    known = nx.single_source_shortest_path_length(net, goal)
    expected = [known.get(node, np.inf) for node in range(10)]
    assert graph_values(u, v, fixed).tolist() == expected
