"""sum, clip and whiten: methods made of methods."""

import numpy as np
import pytest

from tests.algorithms.credit.steps import advantage, assigned, credit_of, forest, tree_rows


@pytest.mark.parametrize("rows", [forest(0), tree_rows(1)])
def test_a_sum_is_the_weighted_sum(rows):
    out = credit_of("sum", rows, methods="grpo,salt", weights="2,-0.5", options='{"salt": {"history": 1}}')
    expected = 2 * advantage("grpo", rows) - 0.5 * advantage("salt", rows, history=1)
    np.testing.assert_allclose(out["advantage"], expected, atol=1e-12)
    np.testing.assert_allclose(out["grpo_advantage"], advantage("grpo", rows), atol=1e-12)


def test_gigpo_is_a_sum():
    rows = forest(3)
    step_only = np.array(credit_of("gigpo", rows)["step_advantage"])
    np.testing.assert_allclose(
        advantage("sum", rows, methods=("gigpo", "grpo"), weights=(1, -1)), step_only, atol=1e-12
    )


def test_a_sum_uses_what_every_method_uses():
    rows = [row | {"agent": "main"} for row in forest(0, groups=1, episodes=1)]
    for k in range(3):
        rows.append({"group": "g0", "episode": f"s{k}", "turn": 0, "reward": k, "agent": "sub",
                     "caller": [rows[0]["episode"], 0]})  # fmt: skip
    options = {"m_grpo": {"align": 2}}
    both = assigned("sum", rows, methods=("grpo", "m_grpo"), options=options)
    alone = assigned("m_grpo", rows, align=2)
    assert both.assigned.tolist() == alone.assigned.tolist()
    assert both.weight.tolist() == alone.weight.tolist()
    assert (~both.assigned).sum() == 1


def test_clip_by_hand():
    rows = forest(2)
    plain = advantage("grpo", rows, std="none")
    clipped = advantage("clip", rows, base="grpo", options={"std": "none"}, low=-0.5, high=0.25)
    np.testing.assert_allclose(clipped, np.clip(plain, -0.5, 0.25))


def test_whiten_by_hand():
    rows = forest(2)
    plain = advantage("rloo", rows)
    white = advantage("whiten", rows, base="rloo")
    np.testing.assert_allclose(white, (plain - plain.mean()) / np.sqrt(plain.var(ddof=1) + 1e-8), atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": "grpo,salt", "weights": "1"}, "2 methods and 1 weights"),
        ({"methods": "grpo", "options": {"salt": {}}}, "options for .'salt'."),
        ({"methods": "grpo,nonesuch"}, "unknown credit method 'nonesuch'"),
        ({"methods": "grpo,segment_tree"}, "segment_tree gives credit to nodes"),
        ({"methods": "grpo,poad"}, "poad gives credit to tokens"),
        ({"methods": "grpo", "options": {"grpo": {"gama": 1}}}, "gama"),
    ],
)
def test_mistakes_are_told(options, message):
    with pytest.raises(ValueError, match=message):
        advantage("sum", forest(0), **options)
