"""Columns with one entry per token live in the token table, and every operation treats them as its tokens."""

import numpy as np
import pytest

from agentrl.graph import Columns, append_rows, expand, pad_columns, paths, select
from tests.graph.graphs import Row, build, chains, partial, trees


def four_rows():
    """Four episodes of one row, two tokens each: row n has the tokens 2n and 2n + 1."""
    return build([Row([1], [2], episode=i) for i in range(4)])


def test_a_selection_of_rows_keeps_the_entries_of_their_tokens():
    # B13: rows 2 and 3 have tokens 4 to 7; cut by row numbers the column was [2, 3], the two tokens of row 1.
    graph = four_rows().with_token_columns(old_logprob=np.arange(8.0))
    rows = np.array([2, 3])
    assert select(graph, rows).token_column("old_logprob").tolist() == [4, 5, 6, 7]
    assert not graph.take(rows).has("old_logprob") and not graph.take(rows).has_token_column("old_logprob")


def test_one_entry_per_token_is_refused_among_the_columns_of_steps_and_the_reverse():
    graph = four_rows()
    with pytest.raises(AssertionError, match="column old_logprob has 8 rows, not 4"):
        graph.with_columns(old_logprob=np.arange(8.0))
    with pytest.raises(AssertionError, match="token column value has 4 entries, not one for each of 8 tokens"):
        graph.with_token_columns(value=np.arange(4.0))


def test_no_name_is_a_column_of_steps_and_of_tokens():
    graph = build([Row([1], [], episode=0), Row([2], [], episode=1)])  # as many tokens as steps
    with pytest.raises(AssertionError, match=r"at once: \['x'\]"):
        graph.with_columns(x=np.zeros(2)).with_token_columns(x=np.zeros(2))


def test_token_columns_need_a_token_table():
    plain = four_rows().take(np.arange(4))
    with pytest.raises(ValueError, match="no token table for the columns old_logprob"):
        plain.with_token_columns(old_logprob=np.zeros(8))
    assert plain.with_token_columns() is plain


def test_reading_a_column_by_the_wrong_kind_says_which_it_is():
    graph = four_rows().with_columns(value=np.zeros(4)).with_token_columns(token_value=np.zeros(8))
    with pytest.raises(
        ValueError, match="poad needs the column 'token_value': it is a column of tokens, read it by tok"
    ):
        graph.column("token_value", "poad")
    with pytest.raises(ValueError, match="poad needs the column 'value': it is a column of steps, read it by column"):
        graph.token_column("value", "poad")
    with pytest.raises(ValueError, match="poad needs the column 'other', which these steps do not have"):
        graph.token_column("other", "poad")


def test_columns_of_both_kinds_are_told_apart_by_where_they_stand():
    # One token per step: the lengths are equal, and the names give no hint.
    graph = build([Row([1], [], episode=0), Row([2], [], episode=1)])
    found = graph.with_all(Columns(steps={"token_a": np.array([1, 2])}, tokens={"b": np.array([3, 4])}))
    assert found.column("token_a").tolist() == [1, 2] and found.token_column("b").tolist() == [3, 4]
    part = select(found, np.array([1]))
    assert part.column("token_a").tolist() == [2] and part.token_column("b").tolist() == [4]
    assert found.take(np.array([1])).column("token_a").tolist() == [2]
    assert expand(found, paths(found)).column("token_a").tolist() == [1, 2]


def test_appended_tokens_have_no_entry():
    tokens = four_rows().with_token_columns(a=np.arange(8.0), b=np.arange(8)).tokens
    more = append_rows(tokens, [np.array([5, 6])], [np.ones(2, bool)], np.array([3]), np.array([2]))
    for name in ("a", "b"):
        np.testing.assert_array_equal(more.columns[name], [*range(8), np.nan, np.nan])
    assert pad_columns({}, 3) == {}


@pytest.mark.parametrize("make", [chains, trees, partial])
@pytest.mark.parametrize("seed", range(5))
def test_any_selection_has_the_entries_of_its_rows_in_order(make, seed):
    graph, rng = make(seed), np.random.default_rng(seed)
    names = ("old_logprob", "token_value", "anything")
    graph = graph.with_token_columns(**{name: rng.normal(size=len(graph.tokens.ids)) for name in names})
    rows = np.flatnonzero(rng.random(len(graph)) < 0.5)
    part = select(graph, rows)
    for name in names:
        slow = [x for row in rows for x in graph.tokens.columns[name][slice(*graph.tokens.offsets[row : row + 2])]]
        assert part.token_column(name).tolist() == slow
    assert part.tokens.ids.tolist() == [
        x for row in rows for x in graph.tokens.ids[slice(*graph.tokens.offsets[row : row + 2])]
    ]


def test_the_mapping_of_token_columns_is_read_only():
    tokens = four_rows().tokens
    with pytest.raises(TypeError):
        tokens.columns["a"] = np.zeros(8)
