"""Graphs on disk: the same graph back, the same bytes twice, and no half-written or half-read file."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from agentrl.files import write_atomically
from agentrl.graph import read_graph, write_graph
from agentrl.graph.store import TABLE, graph_to_bytes
from tests.graph.graphs import Row, build


def graph():
    made = build([Row([1, 2], [3], allowed=[[3, 4]]), Row([4], [5], 0, parent=0, turn=1), Row([6], [7], episode=1)])
    made = made.with_columns(value=np.array([0.5, np.nan, 0.25])).with_token_columns(token_value=np.linspace(0, 1, 7))
    names = {"state": ["", "Ünïcode 漢字", "half \ud800 a pair"], "episode": ["a#0", "b#1"]}
    tails = {"tail_offsets": np.array([0, 2, 2]), "tail_ids": np.array([8, 9])}
    return replace(made, names=names, texts={"answer": ["left", "", "\n\x00"]}, tails=tails)


def assert_same(a, b):
    assert sorted(a.columns) == sorted(b.columns)
    for name, x in a.columns.items():
        np.testing.assert_array_equal(x, b.columns[name])
        assert x.dtype == b.columns[name].dtype
    for name in TABLE:
        np.testing.assert_array_equal(getattr(a.tokens, name), getattr(b.tokens, name))
    assert sorted(a.tokens.columns) == sorted(b.tokens.columns)
    for name, x in a.tokens.columns.items():
        np.testing.assert_array_equal(x, b.tokens.columns[name])
        assert x.dtype == b.tokens.columns[name].dtype
    assert {k: list(v) for k, v in a.names.items()} == {k: list(v) for k, v in b.names.items()}
    assert {k: list(v) for k, v in a.texts.items()} == {k: list(v) for k, v in b.texts.items()}
    for name, x in a.tails.items():
        np.testing.assert_array_equal(x, b.tails[name])


def test_a_graph_comes_back_as_it_was(tmp_path):
    write_graph(graph(), tmp_path / "deep" / "g.safetensors", {"iteration": 3})
    assert_same(graph(), read_graph(tmp_path / "deep" / "g.safetensors"))
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["g.safetensors"]


def test_an_empty_graph_without_tokens_comes_back(tmp_path):
    write_graph(graph().take(np.zeros(0, np.int64)), tmp_path / "g")
    back = read_graph(tmp_path / "g")
    assert len(back) == 0 and back.tokens is None and back.reward.dtype == np.float64


def test_equal_graphs_are_equal_bytes_whatever_the_order_of_columns():
    made = graph()
    turned = made.with_columns()
    object.__setattr__(turned, "columns", dict(reversed(list(made.columns.items()))))
    several = {
        graph_to_bytes(one, note)
        for one in (made, turned)
        for note in ({"b": 1, "a": 2}, {"a": 2, "b": 1})
        for _ in range(9)
    }
    assert len(several) == 1  # safetensors keeps metadata in a hash map: several entries would come in random order
    assert graph_to_bytes(made) != graph_to_bytes(made.with_columns(reward=np.array([0, 0, 1.0])))


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 100, 0.5, 0.99])
def test_a_file_cut_short_is_one_sentence(tmp_path, kept):
    path = tmp_path / "g.safetensors"
    data = graph_to_bytes(graph())
    path.write_bytes(data[: int(kept * len(data)) if isinstance(kept, float) else kept])
    with pytest.raises(ValueError, match="is not a step graph, or it is cut short"):
        read_graph(path)


def test_other_files_are_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="no such graph file"):
        read_graph(tmp_path / "absent")
    (tmp_path / "text").write_text("hello, this is a longer text than a header")
    with pytest.raises(ValueError, match="is not a step graph"):
        read_graph(tmp_path / "text")
    save_file({"weight": np.ones(3)}, tmp_path / "weights")
    with pytest.raises(ValueError, match="holds no step graph"):
        read_graph(tmp_path / "weights")


def test_a_file_of_a_later_format_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("agentrl.graph.store.VERSION", 9)
    write_graph(graph(), tmp_path / "later")
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"of format 9, this agentrl reads formats 1 and 2"):
        read_graph(tmp_path / "later")


FULL = """
import resource, signal, sys
from pathlib import Path
from agentrl.files import write_atomically
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_atomically(Path(sys.argv[1]), b"x" * 5000)
except ValueError as error:
    print(error)
"""


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "state"
    write_atomically(path, b"old")
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"cannot write {path}: ") and "free some space" in done.stdout
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match="cannot write"):
        write_atomically(tmp_path / "file" / "g", b"x")
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_writer_killed_at_the_worst_moment_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "state"
    write_atomically(path, b"old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert isinstance(path, Path)


def version_1(made, **columns):
    """The tensors of a graph as version 1 stored them: columns [N] and [S] under one prefix; and their head."""
    tensors = {f"column/{name}": x for name, x in {**made.columns, **made.tokens.columns, **columns}.items()}
    tensors |= {f"tokens/{name}": getattr(made.tokens, name) for name in TABLE}
    return tensors, {"step_graph": '{"format": "agentrl.step_graph", "note": {}, "version": 1}'}


def test_a_file_of_version_1_is_read_with_its_token_columns_in_the_token_table(tmp_path):
    old = np.arange(7.0)
    made = replace(graph(), names={}, texts={}, tails={}).with_token_columns(old_logprob=old, token_level=np.arange(7))
    tensors, head = version_1(made)
    assert "column/old_logprob" in tensors and not any(name.startswith("token_column/") for name in tensors)
    save_file(tensors, tmp_path / "g", metadata=head)
    back = read_graph(tmp_path / "g")
    assert_same(made, back)
    assert back.token_column("old_logprob").tolist() == old.tolist() and not back.has("old_logprob")
    write_graph(back, tmp_path / "g")  # and is stored anew as version 2
    assert_same(made, read_graph(tmp_path / "g"))
    assert b'\\"version\\": 2' in (tmp_path / "g").read_bytes()


def test_what_a_selection_of_version_1_cut_by_row_numbers_is_dropped(tmp_path):
    tensors, head = version_1(replace(graph(), names={}, texts={}, tails={}), importance=np.ones(3))
    save_file(tensors, tmp_path / "tokens", metadata=head)
    back = read_graph(tmp_path / "tokens")
    assert (
        not back.has("importance") and not back.has_token_column("importance") and back.has_token_column("token_value")
    )
    save_file({k: x for k, x in tensors.items() if not k.startswith("tokens/")}, tmp_path / "plain", metadata=head)
    plain = read_graph(tmp_path / "plain")
    assert plain.tokens is None and not plain.has("importance") and not plain.has("token_value") and plain.has("value")


def test_a_column_of_version_1_of_another_length_is_one_sentence(tmp_path):
    tensors, head = version_1(replace(graph(), names={}, texts={}, tails={}), custom=np.ones(7))
    save_file(tensors, tmp_path / "g", metadata=head)
    with pytest.raises(ValueError, match="of format 1 whose column/custom has 7 entries for 3 steps"):
        read_graph(tmp_path / "g")
