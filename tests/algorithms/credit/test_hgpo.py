"""HGPO."""

import numpy as np
import pytest

from tests.algorithms.credit.steps import advantage, by, chain, credit_of, forest, normal, returns


def test_by_hand():
    # s, t in both: returns at t: 1 and 0; at s (gamma 1): 1 and 0. Level 1 (state alone): +-0.5 at s and t.
    # Level 2 (last two states): (s, t) twice: +-0.5 at t. Every nonzero level agrees, so A = +-0.5
    # everywhere.
    rows = chain("g", "a", [0, 1], state=["s", "t"]) + chain("g", "b", [0, 0], state=["s", "t"])
    np.testing.assert_allclose(advantage("hgpo", rows, gamma=1, std="none"), [0.5, 0.5, -0.5, -0.5])


def test_levels_are_weighted_by_length():
    # at t: level 1 holds 1, 0, -4 (mean -1): 2, 1, -3; level 2 (s, t) holds 1, 0: +-0.5. Weights 2 and 3 of
    # 5: (2*2 + 3*0.5)/5 = 1.1, (2*1 - 3*0.5)/5 = 0.1; the third has level 1 only: -3
    rows = [
        *chain("g", "a", [0, 1], state=["s", "t"]),
        *chain("g", "b", [0, 0], state=["s", "t"]),
        *chain("g", "c", [0, -4], state=["v", "t"]),
    ]
    a = advantage("hgpo", rows, gamma=0, history=1, std="none")
    np.testing.assert_allclose(a, [0, 1.1, 0, 0.1, 0, -3], atol=1e-12)


@pytest.mark.parametrize("std", ["population", "none"])
@pytest.mark.parametrize("seed", range(4))
def test_one_level_is_gigpos_step_term(seed, std):
    rows = forest(seed)
    step = credit_of("gigpo", rows, std=std, step_weight=1)["step_advantage"]
    np.testing.assert_allclose(advantage("hgpo", rows, history=0, std=std), step, atol=1e-6)


@pytest.mark.parametrize("episode_term", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_equals_a_loop(seed, episode_term):
    rows = forest(seed, turns=6, states=3)
    g, levels = returns(rows, 0.95), [[] for _ in rows]
    history = {}
    for (group, _), indices in by(rows, "group", "episode").items():
        for i in indices:
            past = [rows[j]["state"] for j in indices if rows[j]["turn"] <= rows[i]["turn"]]
            history[i] = (group, past)
    for k in (1, 2, 3):
        groups = {}
        for i, (group, past) in history.items():
            if len(past) >= k:
                groups.setdefault((group, *past[-k:]), []).append(i)
        for members in groups.values():
            if len(members) > 1:
                for i, a in zip(members, normal([g[i] for i in members], "population"), strict=True):
                    levels[i].append((k + 1, a))
    if episode_term:
        for i, a in enumerate(advantage("grpo", rows, unit="step")):
            levels[i].append((1, a))
    expected = []
    for own in levels:
        own = [(w, a) for w, a in own if abs(a) > 1e-12]
        expected.append(sum(w * a for w, a in own) / sum(w for w, _ in own) if own else 0.0)
    np.testing.assert_allclose(advantage("hgpo", rows, episode_term=episode_term), expected, atol=1e-9)
