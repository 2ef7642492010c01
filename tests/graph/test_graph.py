"""The step graph refuses what breaks its invariants; paths, selections and views of it by hand."""

from dataclasses import replace

import numpy as np
import pytest

from agentrl.graph import StepGraph, Tokens, path_lengths, paths
from agentrl.types import Status
from tests.graph.graphs import Row, build


def graph() -> StepGraph:
    """Episode 0: rows 0, 1, 2. Episode 1 branches off row 0: row 3. Episode 2, another task: row 4.

    Tokens: row 0 has 1 2 | 3; row 1 continues with 4 | 5; row 2 is a fresh prompt 6 | 7; row 3 keeps two
        tokens of row
    0's path and adds 8 | 9; row 4 is 1 | 9.
    """
    return build([
        Row([1, 2], [3], columns={"reward": 0.5}),
        Row([4], [5], context=0, parent=0, turn=1),
        Row([6], [7], parent=1, turn=2, columns={"reward": 1.0, "terminated": True, "ending": Status.DONE}),
        Row([8], [9], context=0, keep=2, parent=0, episode=1, turn=1, columns={"truncated": True}),
        Row([1], [9], episode=2, group=1, columns={"reward": -1.0, "ending": Status.ENV_ERROR}),
    ])  # fmt: skip


def with_column(name: str, row: int, value: object) -> None:
    column = graph().columns[name].copy()
    column[row] = value
    graph().with_columns(**{name: column})


def with_tokens(**changes: object) -> None:
    whole = graph()
    replace(whole, tokens=replace(whole.tokens, **changes))


@pytest.mark.parametrize(
    ("name", "row", "value", "sentence"),
    [
        ("parent", 1, 1, "a parent must come before"),
        ("parent", 1, 3, "a parent must come before"),
        ("parent", 0, -2, "a parent is a row, or -1"),
        ("caller", 2, 4, "a caller must come before"),
        ("caller", 2, -5, "a caller is a row, or -1"),
        ("reward", 0, np.nan, "rewards must be finite"),
        ("reward", 0, np.inf, "rewards must be finite"),
        ("truncated", 2, True, "terminated or truncated, not both"),
        ("turn", 2, 1, "in time order"),
        ("episode", 1, 2, "contiguous"),
    ],
)
def test_broken_columns_are_refused(name, row, value, sentence):
    with pytest.raises(AssertionError, match=sentence):
        with_column(name, row, value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"offsets": np.array([0, 3, 5, 7, 9])}, "one entry more than there are rows"),
        ({"offsets": np.array([0, 3, 5, 7, 9, 10])}, "offsets must cover"),
        ({"offsets": np.array([0, 5, 3, 7, 9, 11])}, "offsets must ascend"),
        ({"sampled": np.zeros(4, bool)}, "one flag and one log-prob"),
        ({"logprobs": np.full(11, np.nan)}, "must be finite"),
        ({"allowed_offsets": np.zeros(4, np.int64)}, "one entry more than there are tokens"),
        ({"allowed_ids": np.array([3])}, "must cover allowed_ids"),
        ({"context": np.array([-1, 1, -1, 0, -1])}, "a context must come before"),
        ({"context": np.array([-1, -2, -1, 0, -1])}, "a context is a row"),
        ({"context_tokens": np.array([0, 4, 0, 2, 0])}, "cannot keep more tokens of a path"),
        ({"context_tokens": np.array([1, 3, 0, 2, 0])}, "cannot keep more tokens of a path"),
        ({"context_tokens": np.array([0, -1, 0, 2, 0])}, "a context is a row"),
    ],
)
def test_broken_tokens_are_refused(changes, sentence):
    with pytest.raises(AssertionError, match=sentence):
        with_tokens(**changes)


def test_missing_and_short_columns_are_refused():
    columns = dict(graph().columns)
    del columns["weight"]
    with pytest.raises(AssertionError, match=r"columns missing: \['weight'\]"):
        StepGraph(columns=columns)
    with pytest.raises(AssertionError, match="column weight has 2 rows, not 5"):
        StepGraph(columns={**columns, "weight": np.ones(2)})
    with pytest.raises(AssertionError, match="texts answer has 1 rows, not 5"):
        replace(graph(), texts={"answer": ["left"]})


def test_columns_cannot_be_replaced_in_place():
    with pytest.raises(TypeError):
        graph().columns["reward"] = np.zeros(5)


@pytest.mark.parametrize(
    ("row", "path"), [(0, [1, 2, 3]), (1, [1, 2, 3, 4, 5]), (2, [6, 7]), (3, [1, 2, 8, 9]), (4, [1, 9])]
)
def test_the_path_of_a_row(row, path):
    assert graph().tokens.path(row).tolist() == path
    assert path_lengths(graph().tokens)[row] == len(path)


def test_a_path_through_a_row_that_is_not_kept():
    # Row 2 continues row 1 but keeps only 1 token of the path, all of it from row 0.
    tokens = build([Row([1, 2], [3]), Row([4], [5], 0, parent=0, turn=1), Row([6], [7], 1, 1, 1, turn=2)]).tokens
    assert tokens.path(2).tolist() == [1, 6, 7]


@pytest.mark.parametrize("seed", range(20))
def test_paths_of_random_graphs_equal_a_slow_walk(seed):
    rng = np.random.default_rng(seed)
    rows, written = [], []  # written[n]: the path of row n, kept beside
    for n in range(12):
        context = int(rng.integers(-1, n))
        keep = int(rng.integers(0, len(written[context]) + 1)) if context >= 0 else 0
        prompt, answer = (
            rng.integers(1, 9, rng.integers(0, 3)).tolist(),
            rng.integers(1, 9, rng.integers(0, 3)).tolist(),
        )
        rows.append(Row(prompt, answer, context, keep, context, episode=n))
        written.append(([] if context < 0 else written[context][:keep]) + prompt + answer)
    made = build(rows)
    assert [made.tokens.path(n).tolist() for n in range(12)] == written
    through = paths(made)
    walks = []
    for leaf in sorted(set(range(12)) - {row.parent for row in rows}):
        walk = [leaf]
        while rows[walk[0]].parent >= 0:
            walk.insert(0, rows[walk[0]].parent)
        walks.append(walk)
    assert [through.row[through.leaf == i].tolist() for i in range(len(walks))] == walks


def test_root_to_leaf_paths_share_rows():
    through = paths(graph())
    assert through.row.tolist() == [0, 1, 2, 0, 3, 4] and through.leaf.tolist() == [0, 0, 0, 1, 1, 2]
    assert graph().branched and not graph().take(np.array([0, 1, 2])).branched


def test_episodes_first_last_score_and_failed():
    whole = graph()
    assert whole.first.tolist() == [True, False, False, True, True]
    assert whole.last.tolist() == [False, False, True, True, True]
    # The branch of row 3 scores what lies on its path: 0.5 of row 0 and its own 0.
    assert whole.score.tolist() == [1.5, 1.5, 1.5, 0.5, -1.0]
    assert whole.with_columns(score=np.arange(5.0)).score.tolist() == [0, 1, 2, 3, 4]
    assert whole.failed().tolist() == [False, False, False, False, True]


def test_a_failed_episode_takes_its_whole_rollout_with_it():
    whole = graph().with_columns(rollout=np.array([0, 0, 0, 1, 1]))
    assert whole.failed().tolist() == [False, False, False, True, True]


def test_a_selection_renumbers_parents_and_drops_tokens():
    whole = replace(graph(), texts={"answer": list("abcde")}).with_columns(caller=np.array([-1, -1, -1, -1, 3]))
    part = whole.take(np.array([1, 2, 3, 4]))
    assert part.parent.tolist() == [-1, 0, -1, -1] and part.caller.tolist() == [-1, -1, -1, 2]
    assert part.tokens is None and list(part.texts["answer"]) == list("bcde")


def test_a_token_column_is_no_column_of_steps_even_if_there_are_as_many_tokens_as_steps():
    graph = build([Row([1], []), Row([2], [], episode=1)]).with_token_columns(token_value=np.array([0.1, 0.2]))
    assert not graph.has("token_value") and graph.has_token_column("token_value")
    one = graph.take(np.array([0]))
    assert not one.has("token_value") and not one.has_token_column("token_value")


def test_a_missing_column_says_who_needs_it():
    with pytest.raises(ValueError, match="vine needs the column 'value'"):
        graph().column("value", "vine")
    with pytest.raises(AttributeError, match="no attribute 'value'"):
        graph().value  # noqa: B018


def test_an_empty_graph_is_a_graph():
    empty = graph().take(np.zeros(0, np.int64))
    assert len(empty) == 0 and not empty.branched and len(empty.score) == len(empty.first) == len(empty.failed()) == 0
    assert len(paths(empty).row) == 0


def test_tokens_of_no_rows():
    none = np.zeros(0, np.int64)
    tokens = Tokens(
        offsets=np.zeros(1, np.int64),
        ids=none,
        sampled=none.astype(bool),
        logprobs=none.astype(float),
        allowed_offsets=np.zeros(1, np.int64),
        allowed_ids=none,
        context=none,
        context_tokens=none,
    )
    assert len(replace(graph().take(none), tokens=tokens)) == 0
