"""Small group methods: role_grpo, multi_conversation, tl_grpo, turn_returns."""

import numpy as np
import pytest

from tests.algorithms.credit.steps import (
    advantage,
    by,
    chain,
    credit_of,
    first_rows,
    forest,
    normal,
    returns,
)


def test_roles_by_hand():
    # turn 0: rewards 1 and 3, turn 1: 5 and 5; agents apart
    rows = chain("g", "a", [1, 5]) + chain("g", "b", [3, 5]) + chain("g", "c", [9], agent=["other"])
    assert advantage("role_grpo", rows, std="none").tolist() == [-1, 0, 1, 0, 0]
    # all turns of an agent together: 1, 5, 3, 5: mean 3.5
    assert advantage("role_grpo", rows, std="none", key="group,agent").tolist() == [-2.5, 1.5, -0.5, 1.5, 0]


def test_roles_by_invocation():
    # each rollout calls s twice; first calls 1 and 3, second calls 5 and 9
    rows = chain("g", "m0", [0], agent=["m"]) + chain("g", "m1", [0], agent=["m"])
    for k, pair in enumerate([(1, 5), (3, 9)]):
        for j, reward in enumerate(pair):
            rows += chain("g", f"s{k}{j}", [reward], agent=["s"], caller=[[f"m{k}", 0]])
    a = advantage("role_grpo", rows, std="none", key=("group", "agent", "invocation"))
    assert a.tolist() == [0, 0, -1, -2, 1, 2]


def test_an_unknown_role_is_refused():
    with pytest.raises(ValueError, match="'colour' is no role column"):
        advantage("role_grpo", chain("g", "a", [1]), key="group,colour")


@pytest.mark.parametrize("seed", range(4))
def test_roles_equal_a_loop(seed):
    rows = forest(seed)
    expected = np.zeros(len(rows))
    for members in by(rows, "group", "turn").values():
        if len(members) > 1:
            expected[members] = normal([rows[i]["reward"] for i in members])
    np.testing.assert_allclose(advantage("role_grpo", rows, key="group,turn,agent"), expected, atol=1e-9)
    without = [{name: x for name, x in row.items() if name != "tree"} for row in rows]
    np.testing.assert_allclose(advantage("role_grpo", without), expected, atol=1e-9)


def test_roles_of_two_trees_are_apart_by_hand():
    # two chains of a task with two actions for each state: 1 and 3 in the first, 10 and 20 in the second. The called
    # agent's chains have trees of their own, and are compared over the task: 5 and 7
    rows = [
        row
        for tree, pair in (("t", (1, 3)), ("u", (10, 20)))
        for place, reward in enumerate(pair)
        for row in chain("g", f"{tree}{place}", [reward], tree=[tree])
    ]
    rows += chain("g", "s0", [5], agent=["s"], tree=["v"]) + chain("g", "s1", [7], agent=["s"], tree=["w"])
    assert advantage("role_grpo", rows, std="none").tolist() == [-1, 1, -5, 5, -1, 1]
    # together: mean 8.5
    pooled = advantage("role_grpo", rows, std="none", key="group,turn,agent")
    assert pooled.tolist() == [-7.5, -5.5, 1.5, 11.5, -1, 1]


def test_all_conversations_share_their_samples_advantage():
    # samples score 0 + 3 and 1: mean 2
    rows = chain("g", "a", [0, 0, 3]) + chain("g", "b", [1])
    assert advantage("multi_conversation", rows).tolist() == [1, 1, 1, -1]
    # sample std of 3 and 1 is sqrt(2)
    np.testing.assert_allclose(advantage("multi_conversation", rows, std="sample", eps=0)[0], 1 / np.sqrt(2))


@pytest.mark.parametrize("seed", range(4))
def test_multi_conversation_is_grpo_over_samples(seed):
    rows = forest(seed)
    np.testing.assert_array_equal(
        advantage("multi_conversation", rows, std="sample"), advantage("grpo", rows, unit="episode")
    )


def test_turn_scores_and_half_the_outcome_by_hand():
    # state s: rewards 1 and 0, population: +-1 (std 0.5). Outcomes 1 and 2: +-1, halved. t and u are
    # singletons.
    rows = chain("g", "a", [1, 0], state=["s", "t"]) + chain("g", "b", [0, 2], state=["s", "u"])
    a = advantage("tl_grpo", rows, eps=0, key="state", outcome="score")
    np.testing.assert_allclose(a, [1 - 0.5, -0.5, -1 + 0.5, 0.5])


def test_turns_of_a_tree_and_the_best_turn_by_hand():
    # one tree, one state at both turns. Turn 0: rewards 1 and 0, turn 1: 0 and 2; population std 0.5 and 1: +-1 each.
    # Best turns 1 and 2: -+1, halved; the sums 1 and 2 are the same here. A chain with a tree of its own has no peer:
    # its best turn is 9, and 1, 2, 9 have mean 4, population std sqrt((9 + 4 + 25) / 3)
    two = chain("g", "a", [1, 0], state=["s"] * 2, tree=["t"] * 2) + chain(
        "g", "b", [0, 2], state=["s"] * 2, tree=["t"] * 2
    )
    np.testing.assert_allclose(advantage("tl_grpo", two, eps=0), [1 - 0.5, -1 - 0.5, -1 + 0.5, 1 + 0.5])
    alone = advantage("tl_grpo", [*two, *chain("g", "c", [9], state=["s"], tree=["u"])], eps=0)
    np.testing.assert_allclose(alone[-1], 0.5 * 5 / np.sqrt(38 / 3))
    # the best turn of 3, 3 is worth 3 and not 6: the outcomes of 3, 3 and of 0, 3 are equal
    equal = chain("g", "a", [3, 3], tree=["t"] * 2) + chain("g", "b", [0, 3], tree=["t"] * 2)
    np.testing.assert_allclose(advantage("tl_grpo", equal, eps=0), [1, 0, -1, 0])


def test_comparing_by_state_needs_states():
    with pytest.raises(ValueError, match="line 1: state"):
        advantage("tl_grpo", chain("g", "a", [1]), key="state")


@pytest.mark.parametrize("seed", range(4))
def test_tl_grpo_equals_a_loop(seed):
    rows = forest(seed)
    expected = np.zeros(len(rows))
    score = [max(other["reward"] for other in rows if other["episode"] == row["episode"]) for row in rows]
    for members in by(rows, "group", "tree", "turn").values():
        if len(members) > 1:
            expected[members] += normal([rows[i]["reward"] for i in members], "population")
    for (group,), members in by(rows, "group").items():
        firsts = [i for i in first_rows(rows) if rows[i]["group"] == group]
        outcome = dict(zip([score[i] for i in firsts], normal([score[i] for i in firsts], "population"), strict=True))
        expected[members] += [0.5 * outcome[score[i]] for i in members]
    np.testing.assert_allclose(advantage("tl_grpo", rows), expected, atol=1e-9)


def test_turn_returns_by_hand():
    # gamma 0.5: returns 0.5*4 = 2, 4 and 0; over the group: mean 2
    rows = chain("g", "a", [0, 4]) + chain("g", "b", [0])
    out = credit_of("turn_returns", rows, gamma=0.5, std="none")
    assert out["step_return"] == [2, 4, 0]
    assert out["advantage"] == [0, 2, -2]
    # per turn: 2 and 0 at turn 0; turn 1 is alone
    assert credit_of("turn_returns", rows, gamma=0.5, std="none", key="group+turn")["advantage"] == [1, 0, -1]


def test_the_return_is_cut_at_a_mismatch():
    # turn 1 did not match: nothing flows through it, neither from 2 to 1 nor from 1 to 0
    rows = chain("g", "a", [1, 2, 4], matched=[True, False, True])
    assert credit_of("turn_returns", rows, gamma=0.5, cut="unmatched")["step_return"] == [1, 2, 4]
    rows = chain("g", "a", [1, 2, 4], matched=[True, True, False])
    assert credit_of("turn_returns", rows, gamma=0.5, cut="unmatched")["step_return"] == [2, 2, 4]
    with pytest.raises(ValueError, match="cut=unmatched needs the column 'matched'"):
        credit_of("turn_returns", chain("g", "a", [1]), cut="unmatched")
    with pytest.raises(ValueError, match="line 2: matched: missing"):
        credit_of("turn_returns", chain("g", "a", [1, 2], matched=[True, None]), cut="unmatched")


@pytest.mark.parametrize("seed", range(4))
def test_turn_returns_equal_a_loop(seed):
    rows = forest(seed)
    g, expected = returns(rows, 0.9), np.zeros(len(rows))
    for members in by(rows, "group", "turn").values():
        if len(members) > 1:
            expected[members] = normal([g[i] for i in members])
    expected += 0.3 * advantage("grpo", rows, unit="step")
    a = advantage("turn_returns", rows, key="group+turn", episode_weight=0.3)
    np.testing.assert_allclose(a, expected, atol=1e-9)
