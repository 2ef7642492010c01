"""Tree-GRPO."""

import numpy as np
import pytest

from tests.algorithms.credit.steps import advantage, chain, credit_of, forest, tree_rows

# tree t: leaves 1 and 0; tree u: leaves 1 and 1
LEAVES = [
    row | {"tree": tree}
    for tree, name, reward in [("t", "a", 1), ("t", "b", 0), ("u", "c", 1), ("u", "d", 1)]
    for row in chain("g", name, [reward])
]


def test_by_hand():
    # inter: mean 0.75; intra: t: mean 0.5, u: constant, 0
    out = credit_of("tree_grpo", LEAVES, std="none")
    assert out["inter"] == [0.25, -0.75, 0.25, 0.25]
    assert out["intra"] == [0.5, -0.5, 0, 0]
    assert out["advantage"] == [0.75, -1.25, 0.25, 0.25]
    assert credit_of("tree_grpo", LEAVES, std="none", mode="inner")["advantage"] == [0.5, -0.5, 0, 0]
    # nested: 0.25 and -0.75 in t, mean -0.25
    assert credit_of("tree_grpo", LEAVES, std="none", mode="nested")["advantage"] == [0.5, -0.5, 0, 0]


def test_a_shared_step_gets_the_sum_over_its_leaves():
    # one prefix step, two leaves of scores 1 and 0: intra cancels, and so does inter
    rows = [
        *chain("g", "a", [0, 1]),
        {"group": "g", "episode": "b", "turn": 1, "reward": 0, "parent": ["a", 0]},
        *chain("g", "c", [0]),
    ]
    out = credit_of("tree_grpo", rows, std="none", inter_weight=0)
    assert out["advantage"] == [0, 0.5, -0.5, 0]
    # inter: leaves 1, 0, 0, mean 1/3: the prefix gets 2/3 - 1/3
    np.testing.assert_allclose(credit_of("tree_grpo", rows, std="none", intra_weight=0)["advantage"][0], 1 / 3)


def test_per_token_pools_tokens():
    # one tree, step of 3 tokens, reward 1 on its last: tokens 0, 0, 1: mean 1/3, sample std sqrt(1/3) =
    # 0.57735; inter = intra, so the last token gets 2 * (2/3)/0.57735 = 2.3094, the others -1.1547; mean over
    # tokens 0
    rows = [row | {"n_tokens": 3, "tree": "t"} for row in chain("g", "a", [1])]
    out = credit_of("tree_grpo", rows, mode="per_token", eps=0)
    np.testing.assert_allclose(out["token_advantage"], [[-1.154700538, -1.154700538, 2.309401077]])
    np.testing.assert_allclose(out["advantage_before_last"], [-1.154700538])
    np.testing.assert_allclose(out["advantage_last"], [2.309401077])
    np.testing.assert_allclose(out["advantage"], [0], atol=1e-12)
    # a lone token is no group, also where a lone score would pass
    lone = [row | {"n_tokens": 1, "tree": "t"} for row in chain("g", "a", [1])]
    assert credit_of("tree_grpo", lone, mode="per_token", singleton="pass")["token_advantage"] == [[0.0]]


@pytest.mark.parametrize("seed", range(4))
def test_single_leaf_trees_leave_grpo_plus_the_singleton_rule(seed):
    rows = [row | {"tree": row["episode"]} for row in forest(seed)]
    np.testing.assert_allclose(advantage("tree_grpo", rows), advantage("grpo", rows))
    out = credit_of("tree_grpo", rows, preset="official", eps=0)
    score = [sum(r["reward"] for r in rows if r["episode"] == row["episode"]) for row in rows]
    np.testing.assert_allclose(out["intra"], score)


@pytest.mark.parametrize("seed", range(6))
def test_equals_a_loop_over_leaves(seed):
    rows = tree_rows(seed)
    at = {(row["episode"], row["turn"]): i for i, row in enumerate(rows)}
    above = [
        at.get(tuple(row["parent"])) if "parent" in row else at.get((row["episode"], row["turn"] - 1)) for row in rows
    ]
    paths = []
    for leaf in sorted(set(range(len(rows))) - set(above)):
        path = [leaf]
        while above[path[-1]] is not None:
            path.append(above[path[-1]])
        root = rows[path[-1]]
        paths.append((root["group"], (root["group"], root["tree"]), sum(rows[i]["reward"] for i in path), path))
    expected = np.zeros(len(rows))
    for _, _, score, path in paths:
        for level in (0, 1):
            key = next(p[level] for p in paths if p[3] is path)
            others = [p[2] for p in paths if p[level] == key]
            if len(others) > 1:
                mu = sum(others) / len(others)
                std = (sum((x - mu) ** 2 for x in others) / (len(others) - 1)) ** 0.5
                for i in path:
                    expected[i] += (score - mu) / (std + 1e-6)
    np.testing.assert_allclose(advantage("tree_grpo", rows), expected, atol=1e-9)
