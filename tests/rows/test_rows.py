"""Rows of every source: values and lines worked by hand, and files that are broken."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest
from pyarrow import ipc, parquet

from agentrl.rows import read_rows, split_readers
from tests.other_pythons import python_with

ROOT = Path(__file__).parents[2]
CSV = (
    "id,question,target,code,flag,note,tags\r\n"
    '1,"Two, or\r\nthree?",12,007,true,,"[""a"", ""b""]"\r\n'
    "\r\n"
    '2,"He said ""no"" — é",NaN,1e3,false,NaN,\r\n'
)


def test_a_csv_file_by_hand(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + CSV.encode())  # with a byte order mark, as Excel writes it
    rows = read_rows(tmp_path / "a.csv")
    # `code` holds 007, which JSON does not write, so the column stays text; `target` is a column of numbers with one
    # missing; `note` has no value of any type, so NaN is a text there. The first row covers lines 2 and 3, and its line
    # end is read as Python reads text.
    assert list(rows) == [
        {"id": 1, "question": "Two, or\nthree?", "target": 12, "code": "007", "flag": True, "note": None,
         "tags": ["a", "b"]},
        {"id": 2, "question": 'He said "no" — é', "target": None, "code": "1e3", "flag": False, "note": "NaN",
         "tags": None},
    ]  # fmt: skip
    assert [rows.place(i) for i in range(2)] == ["line 2", "line 5"]


def test_a_tsv_file_and_a_cell_longer_than_the_library_allows(tmp_path):
    import csv

    before = csv.field_size_limit()
    (tmp_path / "a.tsv").write_text("question\tn\n" + "x" * 300_000 + "\t1\n")
    (row,) = read_rows(tmp_path / "a.tsv")
    assert len(row["question"]) == 300_000 and row["n"] == 1 and csv.field_size_limit() == before


def test_lines_of_jsonl_count_blank_ones_and_a_huge_line_is_read(tmp_path):
    text = "\n" + json.dumps({"q": "x" * 2_000_000}) + "\n\n" + '{"q": "a\u2028b", "n": NaN}\n'
    (tmp_path / "a.jsonl").write_text(text, "utf-8-sig")
    rows = read_rows(tmp_path / "a.jsonl")
    assert [rows.place(i) for i in range(len(rows))] == ["line 2", "line 4"]
    assert len(rows[0]["q"]) == 2_000_000 and rows[1]["q"] == "a\u2028b" and math.isnan(rows[1]["n"])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b'{"q": "\xff\xfe"}\n', "line 1 of .*a.jsonl is not JSON"),
        ("a.jsonl", b'{"q": 1}\n{"q": \n', "line 2 of .*a.jsonl is not JSON"),
        ("a.jsonl", b'{"q": 1}\n[2]\n', "line 2 of .*a.jsonl is no JSON object"),
        ("a.jsonl", b"[" * 100_000, "line 1 of .*a.jsonl is not JSON"),
        ("a.jsonl", b"", "there are no rows in .*a.jsonl"),
        ("a.json", b"[]", "there are no rows in .*a.json"),
        ("a.json", b'{"q": 1}', "a.json must be a JSON list of objects, and it holds dict"),
        ("a.json", b'[{"q": 1}, 2]', "row 1 of .*a.json is no JSON object"),
        ("a.csv", b"", "there are no rows in .*a.csv"),
        ("a.csv", b"q,a\n", "there are no rows in .*a.csv"),
        ("a.csv", b"q,a\n1,2\n3\n", "line 3 of .*a.csv has 1 cells, and the first line names 2 columns"),
        ("a.csv", b'q,a\n1,2\n"3,4\n5,6\n', "the row that begins on line 3 of .*a.csv cannot be read"),
        ("a.csv", b"q,q\n1,2\n", "two columns named 'q'"),
        ("a.csv", b"q, \n1,2\n", "column 2 of .*a.csv has no name"),
        ("a.csv", b"q,a\n\xff,2\n", "a.csv is not UTF-8 text"),
        ("a.parquet", b"PAR1", "a.parquet is no Parquet file"),
        ("a.txt", b"q", "rows are read from .jsonl, .json, .csv, .tsv or .parquet"),
    ],
)
def test_broken_files_are_one_sentence(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=words) as error:
        read_rows(tmp_path / name)
    assert "\n" not in str(error.value)


def saved(folder: Path, *parts: list[dict]) -> None:
    """A folder as `Dataset.save_to_disk` writes it, one file per part."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05}-of-{len(parts):05}.arrow" for i in range(len(parts))]
    for name, rows in zip(names, parts, strict=True):
        table = pyarrow.Table.from_pylist(rows)
        with ipc.new_stream(str(folder / name), table.schema) as file:
            file.write_table(table)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0", "_split": None}
    (folder / "state.json").write_text(json.dumps(state))


def test_saved_data_sets_and_their_splits(tmp_path):
    saved(tmp_path / "one", [{"q": "a"}, {"q": "b"}], [{"q": "c"}])
    rows = read_rows(tmp_path / "one")
    assert [row["q"] for row in rows] == ["a", "b", "c"] and rows[-1] == {"q": "c"} and rows.place(2) == "row 2"
    for split in ("train", "test"):
        saved(tmp_path / "two" / split, [{"q": split}])
    (tmp_path / "two" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert list(split_readers(tmp_path / "two")) == ["train", "test"]
    assert list(read_rows(f"{tmp_path / 'two'}#test")) == [{"q": "test"}]
    with pytest.raises(ValueError, match=r"has the splits train, test: name one, such as .*two#train"):
        read_rows(tmp_path / "two")
    with pytest.raises(ValueError, match="has no split 'dev': its splits are train, test"):
        read_rows(f"{tmp_path / 'two'}#dev")
    (tmp_path / "one" / "data-00001-of-00002.arrow").write_bytes(b"short")
    with pytest.raises(ValueError, match=r"data-00001-of-00002.arrow is no table of a saved data set"):
        read_rows(tmp_path / "one")
    (tmp_path / "one" / "state.json").write_text('{"_data_files": 3}')
    with pytest.raises(ValueError, match=r"state.json names no data files"):
        read_rows(tmp_path / "one")


def test_a_folder_with_a_file_per_split_and_shards_of_the_hub(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "train.jsonl").write_text('{"q": 1}\n')
    (tmp_path / "own" / "test.csv").write_text("q\n2\n")
    (tmp_path / "own" / "corpus.jsonl").write_text('{"contents": "beside splits, a file of another name is none"}\n')
    assert sorted(split_readers(tmp_path / "own")) == ["test", "train"]
    assert list(read_rows(f"{tmp_path / 'own'}#test")) == [{"q": 2}]
    data = tmp_path / "hub" / "data"
    data.mkdir(parents=True)
    for i in range(2):
        table = pyarrow.Table.from_pylist([{"q": i}])
        parquet.write_table(table, data / f"train-{i:05}-of-00002.parquet")
    assert [row["q"] for row in read_rows(tmp_path / "hub")] == [0, 1]
    (tmp_path / "own" / "test.json").write_text("[]")
    with pytest.raises(ValueError, match=r"test.csv and test.json both hold the split 'test'"):
        split_readers(tmp_path / "own")
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="none holds no rows: name a file"):
        read_rows(tmp_path / "none")


def test_a_hub_name_without_the_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)  # as if it were not installed
    with pytest.raises(ValueError, match=r"hub:openai/gsm8k needs the package datasets.*\[hub\]"):
        read_rows("hub:openai/gsm8k#train")


@pytest.mark.slow
def test_with_the_real_package_a_saved_set_is_read_and_an_unreachable_hub_is_one_sentence(tmp_path):
    python = python_with("datasets>=3", "numpy", "pydantic>=2.7")
    code = """
import sys
from datasets import Dataset, DatasetDict
rows = Dataset.from_list([{"q": str(i), "n": [i, None]} for i in range(5)]).filter(lambda row: row["q"] != "1")
DatasetDict({"train": rows, "test": rows.select([2])}).save_to_disk(sys.argv[1])
from agentrl.rows import read_rows
try:
    read_rows("hub:someone/something#train")
except ValueError as error:
    print(error)
"""
    env = {"PYTHONPATH": str(ROOT), "HF_ENDPOINT": "http://127.0.0.1:9", "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([python, "-c", code, tmp_path / "set"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (sentence,) = done.stdout.splitlines()
    assert "Retry" not in done.stderr and "HEAD" not in done.stderr
    assert sentence.startswith("the data set 'someone/something' cannot be loaded from the hub (")
    assert [row["q"] for row in read_rows(f"{tmp_path / 'set'}#train")] == ["0", "2", "3", "4"]
    assert list(read_rows(f"{tmp_path / 'set'}#test")) == [{"q": "3", "n": [3, None]}]
