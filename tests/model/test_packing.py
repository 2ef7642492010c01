"""The layout of a packed batch, its micro-batches and its weights."""

import numpy as np
import pytest

from agentrl.graph import StepGraph, decisions
from agentrl.model import Batch, microbatches, pack, unshared
from agentrl.model.layout import Layout, lay_out
from agentrl.model.packing import _paths_to
from agentrl.trainer.path_weights import aggregation_weights
from tests.graph.graphs import Row, build, chains, partial, trees, windows

GRAPHS = [chains, trees, windows, partial]


def all_rows(graph: StepGraph) -> np.ndarray:
    return np.arange(len(graph))


def paths_of(layout: Layout) -> list[list[int]]:
    """Packed indices each token may attend to, from `subtree_end` alone."""
    return [[k for k in range(q + 1) if q < layout.subtree_end[k]] for q in range(len(layout))]


def test_a_fork_by_hand():
    # Row 0: prompt 1 2, answer 3 4. Row 1 continues it: prompt 5, answer 6. Row 2 keeps 1 2 3: prompt 7,
    # answer 8. Pre-order: 1 2 3 | 4 5 6 | 7 8. The 3 predicts both 4 and 7.
    graph = build([Row([1, 2], [3, 4]), Row([5], [6], 0, None, 0, 0, turn=1), Row([7], [8], 0, 3, 0, 1)])
    layout = lay_out(graph.tokens, all_rows(graph))
    assert graph.tokens.ids[layout.source].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert layout.position.tolist() == [0, 1, 2, 3, 4, 5, 3, 4]
    assert layout.predictor.tolist() == [-1, 0, 1, 2, 3, 4, 2, 6]
    assert layout.subtree_end.tolist() == [8, 8, 8, 6, 6, 6, 8, 8]
    assert layout.run_starts().tolist() == [0, 3, 6]
    batch = pack(graph.tokens, all_rows(graph), np.ones(8))
    # 6 and 8 are trained but nothing follows them: they are targets and not inputs.
    assert batch.ids.tolist() == [1, 2, 3, 4, 5, 7]
    assert batch.target.tolist() == [3, 4, 6, 8]
    assert batch.at.tolist() == [1, 2, 4, 5]
    assert batch.row.tolist() == [0, 0, 1, 2]


def test_equal_prompts_merge_and_equal_answers_do_not():
    rows = [Row([1, 2, 3], [4, 5]), Row([1, 2, 3], [4, 5], episode=1), Row([1, 2, 6], [4], episode=2)]
    graph = build(rows)
    layout = lay_out(graph.tokens, all_rows(graph), min_shared=1)
    assert graph.tokens.ids[layout.source].tolist() == [1, 2, 3, 4, 5, 4, 5, 6, 4]
    assert layout.predictor.tolist() == [-1, 0, 1, 2, 3, 2, 5, 1, 7]
    assert len(lay_out(graph.tokens, all_rows(graph), min_shared=3)) == 5 + 2 + 4  # the third shares two tokens only
    assert len(lay_out(graph.tokens, all_rows(graph), min_shared=4)) == graph.tokens.offsets[-1]


@pytest.mark.parametrize("make", GRAPHS)
@pytest.mark.parametrize("seed", range(10))
def test_the_paths_to_some_tokens_are_all_that_lies_above_them(make, seed):
    graph, rng = make(seed), np.random.default_rng(seed)
    layout = lay_out(graph.tokens, all_rows(graph), 1)
    for count in (0, 1, 2, 5):
        at = rng.integers(len(layout), size=count)
        above = set(at.tolist())
        for token in at.tolist():
            while (token := int(layout.predictor[token])) >= 0:
                above.add(token)
        assert _paths_to(layout, at).tolist() == sorted(above)


@pytest.mark.parametrize("make", GRAPHS)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("min_shared", [1, 4, 16])
def test_each_token_sees_its_path(make, seed, min_shared):
    graph = make(seed)
    layout = lay_out(graph.tokens, all_rows(graph), min_shared)
    ids = graph.tokens.ids[layout.source]
    seen = paths_of(layout)
    assert len(np.unique(layout.source)) == len(layout)
    row_of = np.searchsorted(graph.tokens.offsets, np.arange(len(graph.tokens.ids)), side="right") - 1
    for q, source in enumerate(layout.source):
        row = row_of[source]
        depth = graph.tokens.context_tokens[row] + source - graph.tokens.offsets[row]
        assert layout.position[q] == depth == len(seen[q]) - 1
        assert layout.predictor[q] == (seen[q][-2] if depth else -1)
        assert ids[seen[q]].tolist() == graph.tokens.path(row)[: depth + 1].tolist()
    assert set(np.flatnonzero(graph.tokens.sampled)) <= set(layout.source)


@pytest.mark.parametrize("make", GRAPHS)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("sharing", ["tree", "paths"])
def test_episodes_stay_whole_where_a_loss_needs_them(make, seed, sharing):
    graph = make(seed)
    whole = pack(graph.tokens, all_rows(graph), np.ones(len(graph.tokens.ids)), sharing=sharing, min_shared=4)
    unit = graph.episode[whole.row]
    limit = len(whole) // 2 + 60
    pieces = list(microbatches(whole, limit, unit))
    assert sorted(t for piece in pieces for t in piece.source) == sorted(whole.source)
    owners = [set(graph.episode[piece.row]) for piece in pieces]
    assert all(len(piece) <= limit for piece in pieces) and sum(map(len, owners)) == len(set().union(*owners))
    for piece in pieces:
        check_targets(graph, piece, np.ones(len(graph.tokens.ids)))


@pytest.mark.parametrize("make", GRAPHS)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("sharing", ["tree", "paths"])
def test_microbatches_hold_every_target_once_with_its_path(make, seed, sharing):
    graph = make(seed)
    tokens = graph.tokens
    rng = np.random.default_rng(seed)
    rows = np.flatnonzero(rng.random(len(graph)) < 0.7)
    weight = rng.random(len(tokens.ids))
    whole = pack(tokens, rows, weight, sharing=sharing, min_shared=4)
    longest = int((whole.layout.position[whole.at]).max(initial=0)) + 1
    for limit in (longest, longest + 7, 2 * longest, 10_000):
        pieces = list(microbatches(whole, limit))
        assert all(len(piece) <= limit for piece in pieces)
        wanted = np.flatnonzero(decisions(tokens) & np.isin(np.repeat(all_rows(graph), np.diff(tokens.offsets)), rows))
        found = np.concatenate([piece.source for piece in pieces]) if pieces else np.zeros(0)
        assert sorted(found) == wanted.tolist()
        for piece in pieces:
            check_targets(graph, piece, weight)
            steps = piece.row[np.flatnonzero(np.diff(piece.row, prepend=-1))]
            assert all(not np.isin(steps, other.row).any() for other in pieces if other is not piece)


def check_targets(graph: StepGraph, piece: Batch, weight: np.ndarray) -> None:
    """Every target of a piece is predicted from the path the model saw, and no token is there for nothing."""
    tokens, seen = graph.tokens, paths_of(piece.layout)
    for i, token in enumerate(piece.source):
        row = piece.row[i]
        depth = tokens.context_tokens[row] + token - tokens.offsets[row]
        assert piece.ids[seen[piece.at[i]]].tolist() == tokens.path(row)[:depth].tolist()
        assert piece.target[i] == tokens.ids[token]
        assert piece.weight[i] == weight[token]
        here = piece.allowed_ids[piece.allowed_offsets[i] : piece.allowed_offsets[i + 1]]
        there = tokens.allowed_ids[tokens.allowed_offsets[token] : tokens.allowed_offsets[token + 1]]
        assert here.tolist() == there.tolist()
    assert set().union(*(seen[at] for at in piece.at)) == set(range(len(piece)))


def test_cuts_fall_where_little_is_copied():
    # Two chains of 12 tokens with three steps each, limit 16: one chain a piece, though 4 more tokens would
    # fit.
    rows = [Row([1, 2], [3, 4], 3 * e + t - 1 if t else -1, None, 3 * e + t - 1 if t else -1, e, turn=t)
            for e in range(2) for t in range(3)]  # fmt: skip
    graph = build(rows)
    pieces = list(microbatches(pack(graph.tokens, all_rows(graph), np.ones(24)), 16))
    assert [len(piece) for piece in pieces] == [11, 11]


def test_a_path_longer_than_a_microbatch_says_what_to_do():
    graph = build([Row(list(range(1, 20)), [1, 2])])
    with pytest.raises(ValueError, match=r"20 tokens.*update\.max_tokens"):
        list(microbatches(pack(graph.tokens, np.array([0]), np.ones(21)), 19))


def test_an_answer_without_a_prompt_is_refused():
    with pytest.raises(ValueError, match="begins with a sampled token"):
        pack(build([Row([], [1, 2])]).tokens, np.array([0]), np.ones(2))


def test_forced_tokens_are_neither_targets_nor_counted():
    graph = build([Row([1], [2, 3, 4], allowed=[[2], [3, 5], []])])
    assert decisions(graph.tokens).tolist() == [False, False, True, True]
    assert pack(graph.tokens, np.array([0]), np.ones(4)).target.tolist() == [3, 4]


def test_unshared_lays_each_leaf_path_out_once():
    graph = build([Row([1, 2], [3, 4]), Row([5], [6], 0, None, 0, 0, turn=1), Row([7], [8], 0, 3, 0, 1)])
    layout = unshared(graph.tokens, all_rows(graph))
    assert sorted(map(tuple, np.split(graph.tokens.ids[layout.source], np.flatnonzero(layout.position == 0)[1:]))) == [
        (1, 2, 3, 4, 5, 6),
        (1, 2, 3, 7, 8),
    ]
    batch = pack(graph.tokens, all_rows(graph), np.ones(8), sharing="paths")
    assert sorted(batch.source) == [2, 3, 5, 7]  # 3 is on both paths and trained once


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        # Row 0 has 2 decisions and counts twice, row 1 has 3 and counts once, row 2 is left out.
        ("token-mean", [1 / 7] * 2),  # 2*2 + 3
        ("seq-mean-token-sum", [1 / 3] * 2),
        ("seq-mean-token-mean", [1 / 6, 1 / 9]),
        ("seq-mean-token-sum-norm", [1 / 9] * 2),  # the longest has 3
    ],
)
def test_aggregation_by_hand(how, expected):
    weights = aggregation_weights(np.array([2, 3, 1]), np.array([2.0, 1.0, 0.0]), np.arange(3), how)
    np.testing.assert_allclose(weights[:2], expected)


def test_episodes_as_sequences():
    # Rows of 2 and 1 decisions are one episode, a row of 1 another: 1 / (2 episodes * 3) and 1 / (2 * 1).
    weights = aggregation_weights(np.array([2, 1, 1]), np.ones(3), np.array([7, 7, 9]), "seq-mean-token-mean")
    np.testing.assert_allclose(weights, [1 / 6, 1 / 6, 1 / 2])
