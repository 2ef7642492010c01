"""SALT."""

import numpy as np
import pytest

from tests.algorithms.credit.steps import advantage, by, chain, credit_of, forest


def test_by_hand():
    # both take x from s to t, then part. Base (mean only) +-0.5: the shared step averages to 0, the others
    # keep theirs.
    rows = [
        *chain("g", "a", [0, 1], state=["s", "t"], action=["x", "y"]),
        *chain("g", "b", [0, 0], state=["s", "t"], action=["x", "z"]),
    ]
    out = credit_of("salt", rows, std="none")
    assert out["advantage"] == [0, 0.5, 0, -0.5]
    assert out["base_advantage"] == [0.5, 0.5, -0.5, -0.5]
    assert out["merged"] == [True, False, True, False]


def test_a_winning_and_a_losing_last_step_do_not_merge():
    same = {"state": ["s"], "action": ["x"]}
    rows = chain("g", "a", [1], **same) + chain("g", "b", [0], **same)
    assert credit_of("salt", rows, std="none")["advantage"] == [0.5, -0.5]
    given = {**same, "next_state": ["end"]}  # taken as given
    rows = chain("g", "a", [1], **given) + chain("g", "b", [0], **given)
    assert credit_of("salt", rows, std="none")["advantage"] == [0, 0]


def test_history_asks_for_the_steps_before():
    rows = [
        *chain("g", "a", [0, 1], state=["s", "t"], action=["x", "y"], next_state=["t", "end"]),
        *chain("g", "b", [0, 0], state=["u", "t"], action=["x", "y"], next_state=["t", "end"]),
    ]
    assert credit_of("salt", rows, std="none")["merged"] == [False, True, False, True]
    assert credit_of("salt", rows, std="none", history=1)["merged"] == [False] * 4


@pytest.mark.parametrize("seed", range(3))
def test_without_repeated_steps_it_is_its_base(seed):
    rows = [row | {"state": str(i)} for i, row in enumerate(forest(seed))]
    np.testing.assert_array_equal(advantage("salt", rows), advantage("grpo", rows))
    np.testing.assert_array_equal(advantage("salt", rows, base="rloo"), advantage("rloo", rows))


@pytest.mark.parametrize("base", ["grpo", "rloo"])
@pytest.mark.parametrize("history", [0, 1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_equals_a_loop(seed, history, base):
    rows = forest(seed, episodes=8, states=2)
    own = advantage(base, rows)
    edges = {}
    for (group, _), indices in by(rows, "group", "episode").items():
        won = sum(rows[i]["reward"] for i in indices) > 0
        for k, i in enumerate(indices):
            past = tuple((rows[j]["state"], rows[j]["action"]) for j in indices[max(k - history, 0) : k + 1])
            after = rows[indices[k + 1]]["state"] if k + 1 < len(indices) else won
            edges.setdefault((group, past, after), []).append(i)
    expected = np.zeros(len(rows))
    for members in edges.values():
        expected[members] = sum(own[i] for i in members) / len(members)
    np.testing.assert_allclose(advantage("salt", rows, base=base, history=history), expected, atol=1e-12)


def test_rloo_takes_no_std():
    with pytest.raises(ValueError, match="base=rloo takes no std"):
        advantage("salt", forest(0), base="rloo", std="none")
