"""Laws that hold for every credit method."""

import numpy as np
import pytest
from pydantic import ValidationError

from agentrl import catalogue
from agentrl.credit import assign
from agentrl.graph import expand, paths
from tests.algorithms.credit.steps import assigned, credit_of, forest, graph_of, root_to_leaf, tree_rows
from tests.toys.entries import credit_method

METHODS = [name for name in catalogue.names("credit") if not catalogue.load("credit", name).wraps]
DRAWN = {"m_grpo"}  # which duplicates are drawn depends on the order
NORMALISED = ["grpo", "rloo", "gigpo", "hgpo", "graph_gpo", "salt", "tree_grpo", "role_grpo", "turn_returns"]


def test_the_table_of_methods_is_complete():
    assert {
        "grpo", "rloo", "gigpo", "hgpo", "graph_gpo", "graft", "salt", "tree_grpo", "turn_ppo", "bilevel_gae",
        "poad", "hiper", "m_grpo", "role_grpo", "turn_returns", "info_gain", "vine_ppo", "segment_tree",
        "single_stream", "multi_conversation", "tl_grpo", "token_gae",
    } <= set(METHODS)  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_methods_say_where_they_come_from(method):
    module = catalogue.load("credit", method)
    assert "Source:" in module.about
    assert module.paper


@pytest.mark.parametrize("method", METHODS)
def test_config_refuses_what_it_does_not_know(method):
    config = catalogue.load("credit", method).config
    with pytest.raises(ValidationError):
        config(no_such_option=1)
    with pytest.raises(ValidationError):
        config().preset = "official"


@pytest.mark.parametrize("method", METHODS)
def test_an_explicit_option_wins_over_the_preset(method):
    config = catalogue.load("credit", method).config
    released = config(preset="official")
    for name, value in config.OFFICIAL.items():
        assert getattr(released, name) == value
        default = getattr(config(), name)
        assert getattr(config(preset="official", **{name: default}), name) == default
    assert config.model_validate(released.model_dump()) == released


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("method", sorted(set(METHODS) - DRAWN))
def test_order_of_lines_and_episodes_changes_nothing(method, seed):
    rows = forest(seed)
    order = np.random.default_rng(seed).permutation(len(rows))
    straight = credit_of(method, rows)
    shuffled = credit_of(method, [rows[i] for i in order])
    for part, values in straight.items():
        if part == "step_group":
            continue
        for position, i in enumerate(order):
            np.testing.assert_allclose(
                np.array(shuffled[part][position], float), np.array(values[i], float), atol=1e-9, err_msg=part
            )


@pytest.mark.parametrize("method", METHODS)
def test_a_failed_environment_is_nobodys_score(method):
    rows = forest(5)
    broken = [dict(row) for row in rows]
    victim = rows[0]["episode"]
    last = max(i for i, row in enumerate(rows) if row["episode"] == victim)
    broken[last]["status"] = "env_error"
    left = [row for row in rows if row["episode"] != victim]
    with_failure, without = credit_of(method, broken), credit_of(method, left)
    kept = [i for i, row in enumerate(rows) if row["episode"] != victim]
    for part, values in without.items():
        if part == "step_group":
            continue
        for i, value in zip(kept, values, strict=True):
            np.testing.assert_allclose(
                np.array(with_failure[part][i], float), np.array(value, float), atol=1e-12, err_msg=part
            )
    assert all(with_failure["advantage"][i] is None for i in range(len(rows)) if i not in kept)


@pytest.mark.parametrize("method", NORMALISED)
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 0.7])
def test_constant_groups_give_exactly_zero(method, value):
    rows = [row | {"reward": 0.0} for row in forest(1)]
    ends = {row["episode"]: i for i, row in enumerate(rows)}
    for i in ends.values():
        rows[i] |= {"reward": value, "terminated": True, "truncated": False}
    length_one = [row | {"valid": True, "turn": 0, "state": "s"} for row in (rows[i] for i in ends.values())]
    assert credit_of(method, length_one)["advantage"] == [0.0] * len(length_one)


@pytest.mark.parametrize("method", METHODS)
def test_a_file_of_one_step_is_credited(method):
    rows = forest(0, groups=1, episodes=1, turns=1)
    a = credit_of(method, rows)["advantage"][0]
    assert a is not None and np.isfinite(a)


@pytest.mark.parametrize("method", ["gigpo", "grpo", "rloo", "salt", "tree_grpo", "hgpo", "turn_returns", "graph_gpo"])
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_trees_equal_their_expanded_paths(method, seed, noisy):
    rows = tree_rows(seed, noisy=noisy)
    paths = root_to_leaf(rows)
    wide = assigned(method, [row for row, _ in paths])
    graph = graph_of([row for row, _ in paths])
    line = graph.column("line") - 1
    positive, negative, weight = np.zeros((3, len(rows)))
    for k, source in enumerate(np.array([i for _, i in paths])[line]):
        positive[source] += wide.positive[k]
        negative[source] += wide.negative[k]
        weight[source] += wide.weight[k]
    pooled = assigned(method, rows)
    order = graph_of(rows).column("line") - 1
    np.testing.assert_allclose(pooled.positive, positive[order], atol=1e-12)
    np.testing.assert_allclose(pooled.negative, negative[order], atol=1e-12)
    np.testing.assert_allclose(pooled.weight, weight[order], atol=1e-12)
    np.testing.assert_allclose(pooled.advantage, (positive - negative)[order], atol=1e-12)


@pytest.mark.parametrize("method", sorted(set(METHODS) - DRAWN - {"vine_ppo", "segment_tree", "poad"}))
@pytest.mark.parametrize("seed", range(3))
def test_weight_is_a_number_of_copies(method, seed):
    """An episode of weight 3 is three equal episodes, in every statistic."""
    rng = np.random.default_rng(seed)
    rows = forest(seed)
    times = {row["episode"]: int(rng.integers(1, 4)) for row in rows}
    weighted = credit_of(method, [row | {"weight": times[row["episode"]]} for row in rows])
    source = [(i, c) for i, row in enumerate(rows) for c in range(times[row["episode"]])]
    copies = [rows[i] | {"episode": f"{rows[i]['episode']} {c}"} for i, c in source]
    apart = credit_of(method, copies)
    for part in set(weighted) - {"step_group", "merged"}:
        for (i, _), value in zip(source, apart[part], strict=True):
            np.testing.assert_allclose(
                np.array(weighted[part][i], float), np.array(value, float), atol=1e-8, err_msg=part
            )


@pytest.mark.parametrize("seed", range(5))
def test_segment_values_on_expanded_paths(seed):
    """segment_tree from the root-to-leaf rows alone: equal prefixes are one node, whose value is the mean over the
    distinct steps that follow; every copy of a step has its node's advantage."""
    rows = tree_rows(seed)
    paths: dict[str, list[int]] = {}
    for copy, source in root_to_leaf(rows):
        paths.setdefault(copy["episode"], []).append(source)
    prefixes = {tuple(path[:k]) for path in paths.values() for k in range(1, len(path) + 1)}

    def value(prefix):
        after = [p for p in prefixes if p[:-1] == prefix]
        return sum(map(value, after)) / len(after) if after else rows[prefix[-1]]["reward"]

    out = credit_of("segment_tree", rows)["advantage"]
    for prefix in prefixes:
        root = rows[prefix[0]]
        siblings = [p for p in prefixes if p[:-1] == prefix[:-1]]
        if len(prefix) == 1:
            siblings = [p for p in siblings if all(rows[p[0]][k] == root[k] for k in ("group", "tree"))]
        above = sum(map(value, siblings)) / len(siblings)
        assert out[prefix[-1]] == pytest.approx(value(prefix) - above, abs=1e-12)


def test_credit_per_token_refuses_trees():
    rows = [row | {"token_value": [0.0]} for row in tree_rows(0)]
    with pytest.raises(ValueError, match="these steps branch"):
        credit_of("poad", rows)


def test_a_path_through_two_episodes_is_one_chain():
    # b continues a without a fork: one path scored 1 + 2 = 3, against c's 0
    rows = [
        {"group": "g", "episode": "a", "turn": 0, "reward": 1.0},
        {"group": "g", "episode": "b", "turn": 1, "reward": 2.0, "parent": ["a", 0]},
        {"group": "g", "episode": "c", "turn": 0, "reward": 0.0},
    ]
    assert credit_of("grpo", rows, std="none")["advantage"] == [1.5, 1.5, -1.5]


def test_a_path_has_the_score_of_its_leaf():
    # a and its branch b share turn 0; scores are given: leaf a 1, leaf b 0, so the shared step's halves cancel
    rows = [
        {"group": "g", "episode": "a", "turn": 0, "reward": 9.0, "score": 1.0},
        {"group": "g", "episode": "a", "turn": 1, "reward": 9.0, "score": 1.0},
        {"group": "g", "episode": "b", "turn": 1, "reward": 9.0, "score": 0.0, "parent": ["a", 0]},
    ]
    assert credit_of("grpo", rows, std="none")["advantage"] == [0, 0.5, -0.5]


def test_a_path_is_one_rollout():
    # branches take the rollout of their leaf, whose copy of a shared step is its own
    graph = graph_of(tree_rows(3))
    graph = graph.with_columns(rollout=graph.episode)
    wide = expand(graph, paths(graph))
    assert len(np.unique(graph.episode)) < len(graph)
    for episode in np.unique(wide.episode):
        mine = np.flatnonzero(wide.episode == episode)
        assert len(set(wide.rollout[mine])) == 1
        on = paths(graph)
        assert wide.rollout[mine[-1]] == graph.rollout[on.row[mine[-1]]]


def test_metrics_report_degenerate_groups():
    # group a: two equal scores; group b: a singleton; group c: different scores. All credit lies on turn 0.
    rows = [
        {"group": group, "episode": f"{group}{i}", "turn": 0, "reward": reward, "state": f"{group}{i}"}
        for group, scores in {"a": [1.0, 1.0], "b": [1.0], "c": [0.0, 1.0]}.items()
        for i, reward in enumerate(scores)
    ]
    metrics = assign(credit_method("gigpo"), graph_of(rows)).metrics
    assert metrics["zero_variance_groups"] == pytest.approx(1 / 3)
    assert metrics["singleton_groups"] == pytest.approx(1 / 3)
    assert metrics["credit_mass_turn_0"] == 1.0
    assert metrics["singleton_step_groups"] == 1.0
