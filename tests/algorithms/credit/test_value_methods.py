"""Methods from stored values: vine_ppo, segment_tree, info_gain, single_stream."""

import math

import numpy as np
import pytest

from agentrl.algorithms.credit.single_stream import Tracker
from agentrl.graph import tree_up
from tests.algorithms.credit.steps import advantage, by, chain, credit_of, forest, normal, scores, tree_rows


def test_vine_by_hand():
    # 0 + 0.5 - 0.2 = 0.3; 0 + 0.25 - 0.5 = -0.25; 1 + 0 - 0.25 = 0.75
    rows = chain("g", "a", [0, 0, 1], value=[0.2, 0.5, 0.25])
    np.testing.assert_allclose(advantage("vine_ppo", rows), [0.3, -0.25, 0.75])


def test_vine_after_the_last_estimate():
    # V(2) = 1 and V(1) = 2 + 1 = 3 are filled in, so A_0 = 0 + 3 - 0.5 and the rest 0
    rows = chain("g", "a", [0, 2, 1], value=[0.5, None, None])
    assert advantage("vine_ppo", rows).tolist() == [2.5, 0, 0]
    with pytest.raises(ValueError, match="line 1: value: missing before"):
        advantage("vine_ppo", chain("g", "a", [0, 2], value=[None, 0.5]))


@pytest.mark.parametrize("seed", range(4))
def test_vine_sums_to_score_minus_first_value(seed):
    rows = forest(seed)
    a, score = advantage("vine_ppo", rows), scores(rows)
    for indices in by(rows, "group", "episode").values():
        assert sum(a[indices]) == pytest.approx(score[indices[0]] - rows[indices[0]]["value"])


def test_segment_tree_by_hand():
    # root segments: a (leaves 1 and 0 below: value 0.5) and d (leaf, 1). Prompt: 0.75.
    rows = [
        {"group": "g", "tree": "t", "episode": "a", "turn": 0, "reward": 7},  # an inner reward does not count
        {"group": "g", "tree": "t", "episode": "a", "turn": 1, "reward": 1},
        {"group": "g", "episode": "b", "turn": 1, "reward": 0, "parent": ["a", 0]},
        {"group": "g", "tree": "t", "episode": "d", "turn": 0, "reward": 1},
    ]
    assert advantage("segment_tree", rows).tolist() == [-0.25, 0.5, -0.5, 0.25]
    # population std of two siblings is half their distance: all +-1
    np.testing.assert_allclose(advantage("segment_tree", rows, std="population", eps=0), [-1, 1, -1, 1])


@pytest.mark.parametrize("seed", range(6))
def test_segment_tree_equals_recursion(seed):
    rows = tree_rows(seed)
    at = {(row["episode"], row["turn"]): i for i, row in enumerate(rows)}
    above = [
        at.get(tuple(row["parent"])) if "parent" in row else at.get((row["episode"], row["turn"] - 1)) for row in rows
    ]
    children = {p: [i for i, a in enumerate(above) if a == p] for p in set(above)}

    def value(i):
        below = children.get(i, [])
        return sum(map(value, below)) / len(below) if below else rows[i]["reward"]

    expected = []
    for i, row in enumerate(rows):
        siblings = children[above[i]]
        if above[i] is None:
            siblings = [j for j in siblings if (rows[j]["group"], rows[j]["tree"]) == (row["group"], row["tree"])]
        expected.append(value(i) - sum(map(value, siblings)) / len(siblings))
    np.testing.assert_allclose(advantage("segment_tree", rows), expected, atol=1e-12)


def test_tree_up_by_hand():
    # 0 -> {1, 2}, 1 -> {3, 4}
    parent, x = np.array([-1, 0, 0, 1, 1]), np.array([9.0, 9, 3, 1, 2])
    assert tree_up(x, parent).tolist() == [2.25, 1.5, 3, 1, 2]
    assert tree_up(x, parent, "sum").tolist() == [6, 3, 3, 1, 2]
    assert tree_up(x, parent, "max").tolist() == [3, 2, 3, 1, 2]


def test_info_gain_by_hand():
    # p: 0.25 before, 0.5 after turn 0; the last turn's reward 1 (its p does not matter). r = 0.25, 1.
    p = [math.log(0.5), None]
    rows = chain("g", "a", [0, 1], gold_logprob=p, gold_logprob_start=[math.log(0.25), None])
    rows += chain("g", "b", [0])
    out = credit_of("info_gain", rows, gamma=0.5, eps=0)
    np.testing.assert_allclose(out["turn_reward"], [0.25, 1, 0])
    n = normal([0.25, 1, 0], eps=0)
    np.testing.assert_allclose(out["advantage"], [n[0] + 0.5 * n[1], n[1], n[2]])
    # released form without tokens, one per turn: turn 0 has 0.25 and 0, mean 0.125; turn 1 has 1 and, b being over, 0
    released = credit_of("info_gain", rows, preset="official")["advantage"]
    np.testing.assert_allclose(released, [0.125, 0.5, -0.125])


def released_rows(observation: int):
    """a: p 0.25 -> 0.5 in 2 tokens, an observation, then 1 token rewarded 1; b: 2 tokens rewarded 0."""
    rows = chain("g", "a", [0, 1], gold_logprob=[math.log(0.5), None], gold_logprob_start=[math.log(0.25), None])
    rows[0]["n_tokens"], rows[1]["n_tokens"], rows[1]["observation_tokens"] = 2, 1, observation
    return [*rows, *chain("g", "b", [0], n_tokens=[2])]


def test_info_gain_as_released_by_hand():
    # one response: reward-to-go of a's tokens 1.25, 1.25, 1; of b's 0, 0 (and 0 where it is over): halves
    out = credit_of("info_gain", released_rows(0), preset="official")
    assert out["token_advantage"] == [[0.625, 0.625], [0.5], [-0.625, -0.625]]
    assert out["advantage"] == [0.625, 0.5, -0.625]
    # a masked observation between the turns: credit does not cross it
    out = credit_of("info_gain", released_rows(3), preset="official")
    assert out["token_advantage"] == [[0.125, 0.125], [0.5], [-0.125, -0.125]]
    # against the returns at the first token, 0.25 and 0: mean 0.125, sample std 0.25 / sqrt(2)
    out = credit_of("info_gain", released_rows(3), normalise="start", eps=0)
    half = 0.5**0.5
    np.testing.assert_allclose(out["token_advantage"][0], [half, half])
    np.testing.assert_allclose(out["token_advantage"][1], [0.875 / 0.25 * 2**0.5])
    np.testing.assert_allclose(out["token_advantage"][2], [-half, -half])
    # gamma is per token: 0.25 * 0.5 on a's first token, less half of it
    out = credit_of("info_gain", released_rows(3), preset="official", gamma=0.5)
    assert out["token_advantage"][0] == [0.0625, 0.125]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("normalise", ["position", "start"])
def test_info_gain_as_released_equals_padded_responses(normalise, seed):
    """The padded arithmetic of the released code: a row per episode, a column per position, 0 where nothing is."""
    rng = np.random.default_rng(seed)
    rows = [row | {"n_tokens": int(rng.integers(1, 4))} for row in forest(seed)]
    for row in rows:
        row.pop("token_value")
        row["observation_tokens"] = int(rng.integers(0, 3))
    out = credit_of("info_gain", rows, normalise=normalise, gamma=0.9)
    for group in by(rows, "group").values():
        own = by([rows[i] for i in group], "episode").values()
        reward, mask = np.zeros((2, len(own), 60))
        places = {}
        for e, indices in enumerate(own):
            at = 0
            for k, i in enumerate(group[j] for j in indices):
                at += rows[i]["observation_tokens"] if k else 0
                places[i] = (e, slice(at, at + rows[i]["n_tokens"]))
                at += rows[i]["n_tokens"]
                mask[places[i]] = 1
                reward[e, at - 1] = out["turn_reward"][i]
        togo, carry = np.zeros_like(reward), np.zeros(len(own))
        for t in reversed(range(60)):
            carry = togo[:, t] = (reward[:, t] + 0.9 * carry) * mask[:, t]
        if normalise == "position":
            want = togo - togo.mean(0)
        else:
            want = (togo - togo[:, 0].mean()) / (togo[:, 0].std(ddof=1) + 1e-6)
        for i, place in places.items():
            np.testing.assert_allclose(out["token_advantage"][i], want[place], atol=1e-9)


def test_info_gain_as_released_wants_chains_and_tokens_everywhere():
    rows = released_rows(0)
    with pytest.raises(ValueError, match="these steps branch"):
        branch = {**rows[1], "episode": "c", "parent": ["a", 0]}
        credit_of("info_gain", [*rows, branch], preset="official")
    with pytest.raises(ValueError, match="line 3: n_tokens"):
        credit_of("info_gain", [*rows[:2], rows[2] | {"n_tokens": 0}], preset="official")
    with pytest.raises(ValueError, match="cannot be combined"):
        credit_of("clip", rows, base="info_gain", options={"preset": "official"})


def test_info_gain_names_what_is_missing():
    with pytest.raises(ValueError, match="line 1: gold_logprob_start"):
        advantage("info_gain", chain("g", "a", [0, 1], gold_logprob=[-1.0, None], gold_logprob_start=[None, -1.0]))
    with pytest.raises(ValueError, match="line 1: gold_logprob: missing"):
        advantage("info_gain", chain("g", "a", [0, 1], gold_logprob=[None, -1.0], gold_logprob_start=[-1.0, None]))


@pytest.mark.parametrize("seed", range(4))
def test_info_gain_equals_a_loop(seed):
    rows = forest(seed)
    reward, expected = np.zeros(len(rows)), np.zeros(len(rows))
    for indices in by(rows, "group", "episode").values():
        before = math.exp(rows[indices[0]]["gold_logprob_start"])
        for i in indices[:-1]:
            now = math.exp(rows[i]["gold_logprob"])
            reward[i], before = now - before, now
        reward[indices[-1]] = rows[indices[-1]]["reward"]
    for members in by(rows, "group").values():
        reward[members] = normal(reward[members].tolist())
    for indices in by(rows, "group", "episode").values():
        carry = 0.0
        for i in reversed(indices):
            carry = expected[i] = reward[i] + 0.7 * carry
    np.testing.assert_allclose(advantage("info_gain", rows, gamma=0.7), expected, atol=1e-9)


def test_single_stream_by_hand():
    # surprises 1 - 0.5 = 0.5 and 0 - 0.25 = -0.25; mean 0.125, sample std 0.53033
    rows = chain("g", "a", [0, 1], value=[0.5, None]) + chain("h", "b", [0], value=[0.25])
    assert advantage("single_stream", rows, whiten=False).tolist() == [0.5, 0.5, -0.25]
    np.testing.assert_allclose(advantage("single_stream", rows), [0.70710678] * 2 + [-0.70710678], atol=1e-6)
    with pytest.raises(ValueError, match="line 2: value"):
        advantage("single_stream", [rows[0], chain("h", "b", [0])[0]])


@pytest.mark.parametrize("seed", range(4))
def test_single_stream_whitens_over_episodes(seed):
    rows = forest(seed)
    a, first = advantage("single_stream", rows), [i[0] for i in by(rows, "group", "episode").values()]
    assert a[first].mean() == pytest.approx(0, abs=1e-12)
    assert a[first].std(ddof=1) == pytest.approx(1, abs=1e-6)


def test_single_stream_weights_count_like_copies():
    rows = [row for name, r in (("a", 1), ("b", 0), ("c", 3)) for row in chain("g", name, [r], value=[0.5])]
    weighted = [rows[0] | {"weight": 2}, *rows[1:]]
    copied = [*rows, rows[0] | {"episode": "copy"}]
    np.testing.assert_allclose(advantage("single_stream", weighted), advantage("single_stream", copied)[:3])


def test_tracker_by_hand():
    tracker = Tracker()
    assert tracker.value("p") == 0.5
    # D = 0.006: rho = 2^-0.1 = 0.933: alpha = 0.933 * 0.5 + 1, beta = 0.933 * 0.5
    tracker.update("p", 1.0, 0.006)
    rho = 2**-0.1
    assert tracker.value("p") == pytest.approx((0.5 * rho + 1) / (rho + 1))
    # clipped: 2^-10 -> 0.875 and 2^0 -> 0.96
    for change, rho in ((0.6, 0.875), (0.0, 0.96)):
        tracker = Tracker()
        tracker.update("p", 0.0, change)
        assert tracker.value("p") == pytest.approx(0.5 * rho / (rho + 1))
    # 6 of 8 successes: alpha 6.5, beta 2.5, scaled to 8 in all
    tracker.start("q", np.array([1.0] * 6 + [0.0] * 2))
    assert tracker.state_dict()["q"] == pytest.approx((6.5 * 8 / 9, 2.5 * 8 / 9))
    assert tracker.sampling_weight("q") == pytest.approx(math.sqrt(6.5 / 9 * 2.5 / 9) + 0.05)


def test_tracker_survives_a_checkpoint():
    tracker, copy = Tracker(), Tracker()
    tracker.update("p", 1.0, 0.01)
    copy.load_state_dict(tracker.state_dict())
    assert copy.value("p") == tracker.value("p")
