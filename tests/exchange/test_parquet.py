"""Step graphs as Parquet tables: an equal graph back, and tables that others read."""

import json
from dataclasses import replace

import numpy as np
import pyarrow
import pytest
from pyarrow import compute, parquet

from agentrl.exchange.parquet import FORMAT, TABLES, read_tables, write_tables
from tests.graph.test_store import assert_same, graph


def test_a_graph_comes_back_as_it_was(tmp_path):
    made = graph()  # with half of a surrogate pair, NaN, an empty tail, allowed sets, a token column
    write_tables(made, tmp_path, "000003", {"iteration": 3})
    back = read_tables(tmp_path, "000003")
    assert_same(made, back)
    assert sorted(back.tails) == sorted(made.tails)
    flags = replace(made, tails={**made.tails, "tail_continues": np.array([True, False])})
    write_tables(flags, tmp_path, "flags")
    assert_same(flags, read_tables(tmp_path, "flags"))
    assert read_tables(tmp_path, "flags").tails["tail_continues"].dtype == bool


def test_graphs_without_tokens_without_rows_and_without_tails_come_back(tmp_path):
    made = graph()
    for name, one in (("some", made.take(np.array([0, 2]))), ("none", made.take(np.zeros(0, np.int64)))):
        write_tables(one, tmp_path, name)
        back = read_tables(tmp_path, name)
        assert back.tokens is None and sorted(back.columns) == sorted(one.columns)
        for key, values in one.columns.items():
            np.testing.assert_array_equal(values, back.columns[key])
            assert values.dtype == back.columns[key].dtype
        assert {k: list(v) for k, v in one.texts.items()} == {k: list(v) for k, v in back.texts.items()}


def test_what_the_tables_say_by_hand(tmp_path):
    made = graph()
    write_tables(made, tmp_path, "g", {"iteration": 3})
    steps = parquet.read_table(tmp_path / "steps" / "g.parquet")
    # The first step adds the tokens 1 2 (read) and 3 (sampled, from the set 3 4); episode 1 is the third row.
    assert steps["token.ids"].to_pylist() == [[1, 2, 3], [4, 5], [6, 7]]
    assert steps["token.sampled"].to_pylist() == [[False, False, True], [False, True], [False, True]]
    assert steps["token.allowed_ids"].to_pylist()[0] == [[], [], [3, 4]]
    assert steps["text.answer"].to_pylist() == ["left", "", "\n\x00"]
    assert steps["episode_name"].to_pylist() == ["a#0", "a#0", "b#1"]
    assert steps["graph"].to_pylist() == ["g"] * 3 and steps["row"].to_pylist() == [0, 1, 2]
    names = parquet.read_table(tmp_path / "names" / "g.parquet")
    states = names.filter(compute.equal(names["column"], "state"))
    assert states["name"].to_pylist() == ["", "Ünïcode 漢字", "half ? a pair"] and states["id"].to_pylist() == [0, 1, 2]
    assert parquet.read_table(tmp_path / "tails" / "g.parquet")["tail_ids"].to_pylist() == [[8, 9], []]
    head = json.loads(steps.schema.metadata[b"agentrl"])
    assert (head["format"], head["version"], head["note"]) == (FORMAT, 1, {"iteration": 3})
    write_tables(made, tmp_path, "h")
    both = parquet.read_table(tmp_path / "steps")  # a folder of graphs is one table
    assert both.num_rows == 6 and sorted(set(both["graph"].to_pylist())) == ["g", "h"]


def test_graphs_with_names_of_every_kind_come_back(tmp_path):
    from tests.report.pages import graph_of, household

    made = graph_of(household())
    write_tables(made, tmp_path, "g")
    back = read_tables(tmp_path, "g")
    for key, values in made.columns.items():
        np.testing.assert_array_equal(values, back.columns[key])
    assert {k: list(v) for k, v in made.names.items()} == {k: list(v) for k, v in back.names.items()}


def test_equal_graphs_give_equal_bytes(tmp_path):
    for name in ("a", "b"):
        write_tables(graph(), tmp_path / name, "g")
    for table in TABLES:
        assert (tmp_path / "a" / table / "g.parquet").read_bytes() == (
            tmp_path / "b" / table / "g.parquet"
        ).read_bytes()


@pytest.mark.parametrize(
    ("breaks", "words"),
    [
        (lambda path: path.unlink(), "no such file of an exported graph"),
        (lambda path: path.write_bytes(b"PAR1"), "is no Parquet file"),
        (
            lambda path: parquet.write_table(pyarrow.table({"a": [1]}), path),
            "is not the table steps",
        ),
        (lambda path: relabel(path, version=2), "has schema version 2, this agentrl reads 1: install the agentrl"),
        (lambda path: change(path, "parent", [5, 5, 5]), "holds a damaged graph g"),
        (lambda path: drop(path, "reward"), "holds a damaged graph g"),
    ],
)
def test_files_that_are_none_are_one_sentence(tmp_path, breaks, words):
    write_tables(graph(), tmp_path, "g")
    breaks(tmp_path / "steps" / "g.parquet")
    with pytest.raises(ValueError, match=words) as error:
        read_tables(tmp_path, "g")
    assert "\n" not in str(error.value)


def relabel(path, **changes):
    table = parquet.read_table(path)
    head = {**json.loads(table.schema.metadata[b"agentrl"]), **changes}
    parquet.write_table(table.replace_schema_metadata({b"agentrl": json.dumps(head).encode()}), path)


def change(path, column, values):
    table = parquet.read_table(path)
    place = table.column_names.index(column)
    parquet.write_table(table.set_column(place, column, pyarrow.array(values, table[column].type)), path)


def drop(path, column):
    parquet.write_table(parquet.read_table(path).drop([column]), path)
