"""GiGPO, and the similarity groups it may use."""

from difflib import SequenceMatcher

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from agentrl.graph import first_fit
from agentrl.graph.similarity import Representative
from tests.algorithms.credit.steps import advantage, by, chain, credit_of, forest, normal, returns

SHARED = chain("g", "a", [0, 10], state=["s", "t"]) + chain("g", "b", [0, 0], state=["s", "u"])


def test_by_hand():
    # step returns: a: 0.5 * 10 = 5, 10; b: 0, 0. State s holds 5 and 0: A_S = +-2.5; t and u are singletons:
    # 0. Episode scores 10 and 0: A_E = +-5.
    out = credit_of("gigpo", SHARED, gamma=0.5, std="none")
    assert out["step_return"] == [5, 10, 0, 0]
    assert out["step_advantage"] == [2.5, 0, -2.5, 0]
    assert out["episode_advantage"] == [5, 5, -5, -5]
    assert out["advantage"] == [7.5, 5, -7.5, -5]
    assert out["step_group"][0] == out["step_group"][2] != out["step_group"][1]


def test_the_penalty_is_local():
    rows = chain("g", "a", [0, 1], state=["s", "t"], valid=[True, False]) + chain("g", "b", [0], state=["s"])
    out = credit_of("gigpo", rows, gamma=0.5, invalid_penalty=0.1, std="none")
    np.testing.assert_allclose(out["step_return"], [0.5, 0.9, 0])  # 1 - 0.1 at t only; s sees 0.5 * 1


def test_equal_states_of_two_groups_do_not_meet():
    rows = chain("g", "a", [1], state=["s"]) + chain("h", "b", [0], state=["s"])
    out = credit_of("gigpo", rows)
    assert out["step_advantage"] == [0, 0]
    assert out["step_group"][0] != out["step_group"][1]


@pytest.mark.parametrize("unit", ["episode", "step"])
@pytest.mark.parametrize("seed", range(4))
def test_unique_states_leave_grpo(seed, unit):
    rows = [row | {"state": str(i)} for i, row in enumerate(forest(seed))]
    np.testing.assert_array_equal(advantage("gigpo", rows, unit=unit), advantage("grpo", rows, unit=unit))


@pytest.mark.parametrize("std", ["sample", "none"])
@pytest.mark.parametrize("seed", range(6))
def test_equals_a_loop(seed, std):
    rows = forest(seed)
    g = returns(rows, 0.9)
    step = np.zeros(len(rows))
    for indices in by(rows, "group", "state").values():
        if len(indices) > 1:
            step[indices] = normal([g[i] for i in indices], std)
    expected = advantage("grpo", rows, std=std) + 2 * step
    np.testing.assert_allclose(advantage("gigpo", rows, gamma=0.9, std=std, step_weight=2), expected, atol=1e-9)


def test_equal_step_returns_give_exactly_zero():
    # the released float32 code gives -0.47 for seven equal returns of 10 * 0.95^k
    rows = [row for i in range(7) for row in chain("g", f"e{i}", [0] * 12 + [10], state=list("abcdefghijklm"))]
    assert advantage("gigpo", rows).tolist() == [0.0] * len(rows)


def test_a_missing_state_names_the_line():
    rows = [*SHARED, {"group": "g", "episode": "c", "turn": 0, "reward": 0}]
    with pytest.raises(ValueError, match="line 5: state: gigpo needs this column on every step"):
        credit_of("gigpo", rows)
    with pytest.raises(ValueError, match="gigpo needs the column 'state'"):
        credit_of("gigpo", [rows[-1]])


def slow_first_fit(texts: list[str], threshold: float) -> list[int]:
    """The released loop: every text against every cluster's first member."""
    members: list[str] = []
    out = []
    for text in texts:
        for number, member in enumerate(members):
            if SequenceMatcher(None, text, member).ratio() >= threshold:
                out.append(number)
                break
        else:
            out.append(len(members))
            members.append(text)
    return out


WORDS = st.lists(st.sampled_from(["red", "reed", "door", "a", "the lamp", "xyz", " "]), max_size=6).map("".join)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(WORDS, st.text("ab", max_size=12)), max_size=10), st.sampled_from([0.3, 0.6, 0.9, 1.0]))
def test_similarity_gives_the_released_partition(texts, threshold):
    assert first_fit([0] * len(texts), texts, threshold).tolist() == slow_first_fit(texts, threshold)


@pytest.mark.parametrize("seed", range(3))
def test_similarity_of_long_texts_keeps_the_popular_character_rule(seed):
    rng = np.random.default_rng(seed)
    base = "".join(rng.choice(list("abcdefgh ,."), size=400))
    texts = []
    for edits in (0, 3, 10, 30, 0, 100):
        letters = list(base)
        for at in rng.integers(400, size=edits):
            letters[at] = "#"
        texts.append("".join(letters))
    texts += texts[:3]
    assert first_fit([0] * len(texts), texts, 0.9).tolist() == slow_first_fit(texts, 0.9)


LONG = st.builds(
    lambda seed, letters, length, edits, move: (seed, letters, length, edits, move),
    st.integers(0, 10**6),
    st.sampled_from(["ab", "abcdefgh ", "the quick brown fox jumps over lazy dogs, 0123"]),
    st.integers(150, 420),
    st.integers(0, 30),
    st.integers(0, 60),
)


@settings(max_examples=120, deadline=None)
@given(LONG)
def test_every_decision_is_difflibs(case):
    seed, letters, length, edits, move = case
    rng = np.random.default_rng(seed)
    old = "".join(rng.choice(list(letters), size=length))
    new = list(old[move:] + old[:move])
    for at in rng.integers(length, size=edits):
        new[at] = rng.choice(list(letters + "#"))
    text = "".join(new)
    ratio = SequenceMatcher(None, text, old).ratio()
    for threshold in (0.1, 0.5, 0.8, 0.95, ratio, np.nextafter(ratio, 2)):
        assert Representative(old).accepts(Representative(text), threshold) == (ratio >= threshold)


def test_similarity_merges_states_and_stays_inside_groups():
    texts = ["the red door", "the red doors", "a blue lamp"]
    rows = [row for i, text in enumerate(texts) for row in chain("g", f"e{i}", [i], state=[text])]
    rows += chain("h", "f", [0], state=["the red door"])
    labels = credit_of("gigpo", rows, similarity=0.9)["step_group"]
    assert labels[0] == labels[1] and len(set(labels)) == 3
