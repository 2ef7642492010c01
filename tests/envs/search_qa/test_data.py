"""Questions from files: FlashRAG and Search-R1 rows, JSONL, and files that are none."""

import json

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from agentrl import catalogue
from agentrl.config import resolve, validate
from agentrl.env import prompt_of, tasks_of
from agentrl.envs.search_qa import Config
from agentrl.envs.search_qa.data import _texts, rows

PROMPT = "Answer the given question. For example, <answer> Beijing </answer>. Question: who wrote it?\n"
SEARCH_R1 = {
    "id": "test_0",
    "question": "who wrote it",
    "golden_answers": ["Ada", "A. L."],
    "data_source": "nq",
    "prompt": [{"role": "user", "content": PROMPT}],
    "ability": "fact-reasoning",
    "reward_model": {"style": "rule", "ground_truth": {"target": ["Ada", "A. L."]}},
    "extra_info": {"split": "test", "index": 0},
}


def put(path, told):
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(told), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in told))
    return str(path)


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_a_search_r1_row(tmp_path, suffix):
    (row,) = rows(put(tmp_path / f"a{suffix}", [SEARCH_R1]), "train")
    assert (row.question, row.answers, row.source) == ("who wrote it?", ("Ada", "A. L."), "nq")
    assert row.prompt == PROMPT and row.key == "nq/test/test_0"


@pytest.mark.parametrize(
    ("told", "answers"),
    [
        ({"question": "q", "golden_answers": ["x"]}, ("x",)),
        ({"question": "q", "answer": "x"}, ("x",)),
        ({"question": "q", "answers": ["x", "y", ""]}, ("x", "y")),
        ({"question": "q", "reward_model": {"ground_truth": {"target": "x"}}}, ("x",)),
        ({"question": "q", "reward_model": {"ground_truth": ["x"]}}, ("x",)),
        ({"env_kwargs": {"question": "q", "ground_truth": {"target": ["x"]}, "data_source": "s"}}, ("x",)),
        ({"env_kwargs": {"question": "q", "ground_truth": ["x"]}}, ("x",)),
        ({"question": "q", "answer": 1931}, ("1931",)),
        ({"question": "q", "answer": 1931.0}, ("1931",)),
        ({"question": "q", "golden_answers": None, "answer": "x"}, ("x",)),
        ({"question": "q", "golden_answers": [], "answers": [None, ""], "answer": "x"}, ("x",)),
        ({"question": "q", "golden_answers": float("nan"), "answer": "x"}, ("x",)),
        (
            {"question": "q", "answer": ["14 December 1972 UTC", "December 1972"]},
            ("14 December 1972 UTC", "December 1972"),
        ),
        # PopQA
        (
            {"question": "q", "obj": "politician", "possible_answers": '["politician", "political leader", "pol"]'},
            ("politician", "political leader", "pol"),
        ),
        # TriviaQA, rc and its test split
        (
            {
                "question": "q",
                "answer": {
                    "aliases": ["Sinclair Lewis", "Harry Sinclair Lewis"],
                    "value": "Sinclair Lewis",
                    "normalized_aliases": ["sinclair lewis"],
                    "normalized_value": "sinclair lewis",
                    "type": "WikipediaEntity",
                    "matched_wiki_entity_name": "",
                    "normalized_matched_wiki_entity_name": "",
                },
            },
            ("Sinclair Lewis", "Harry Sinclair Lewis", "sinclair lewis"),
        ),
        # SQuAD, of the hub and as published
        (
            {"question": "q", "answers": {"text": ["Denver", "Denver", "in Denver"], "answer_start": [1, 1, 2]}},
            ("Denver", "in Denver"),
        ),
        (
            {
                "question": "q",
                "answers": [{"text": "Denver", "answer_start": 1}, {"text": "in Denver", "answer_start": 2}],
            },
            ("Denver", "in Denver"),
        ),
        # MuSiQue, HotpotQA, Bamboogle
        (
            {"question": "q", "answer": "NYC", "answer_aliases": ["New York", "NYC"], "answerable": True},
            ("NYC", "New York"),
        ),
        ({"question": "q", "answer": "NYC", "answer_aliases": []}, ("NYC",)),
        ({"question": "q", "answer": "yes", "type": "comparison", "level": "hard"}, ("yes",)),
        ({"Question": "q", "Answer": "x"}, ("x",)),
        # lists that a CSV file holds as texts
        ({"question": "q", "golden_answers": "['Ada', \"O'Neil\"]"}, ("Ada", "O'Neil")),
        ({"question": "q", "golden_answers": "['Ada' \"O'Neil\"\n 'x y']"}, ("Ada", "O'Neil", "x y")),
        ({"question": "q", "golden_answers": "[1931, 1932]"}, ("1931", "1932")),
        ({"question": "q", "answer": "[sic]"}, ("[sic]",)),
        ({"question": "q", "answer": "[[1, 2]]"}, ("[[1, 2]]",)),
    ],
)
def test_where_answers_stand(tmp_path, told, answers):
    (row,) = rows(put(tmp_path / "a.jsonl", [told]), "train")
    assert row.answers == answers and row.question == "q?"


def test_answers_may_be_an_array():
    assert _texts(np.array(["x", "y"], object)) == ("x", "y") and _texts({"a": 1}) == () and _texts(True) == ()
    assert _texts({"text": np.array(["x"], object), "answer_start": np.array([3])}) == ("x",)


def test_answers_of_a_parquet_file(tmp_path):
    told = [
        {"question": "a", "answer": {"value": "x", "aliases": ["y", "z"]}, "golden_answers": None},
        {"question": "b", "answer": {"value": None, "aliases": []}, "golden_answers": ["w"]},
    ]
    assert [row.answers for row in rows(put(tmp_path / "a.parquet", told), "train")] == [("x", "y", "z"), ("w",)]


def test_keys_are_unique_and_a_folder_has_a_file_a_split(tmp_path):
    put(tmp_path / "train.jsonl", [{"id": 7, "question": "a", "answer": "x"}] * 3)
    put(tmp_path / "test.parquet", [SEARCH_R1])
    assert [row.key for row in rows(str(tmp_path), "train")] == ["train/7", "train/7#2", "train/7#3"]
    assert rows(str(tmp_path), "test")[0].source == "nq"


def test_a_file_that_changes_is_read_again(tmp_path):
    file = tmp_path / "a.jsonl"
    first = rows(put(file, [{"question": "a", "answer": "x"}]), "train")
    assert rows(put(file, [{"question": "a longer one", "answer": "x"}]), "train") != first
    (tmp_path / "set").mkdir()
    for name in ("train", "test"):
        put(tmp_path / "set" / f"{name}.jsonl", [{"question": name, "answer": "x"}])
    assert rows(f"{tmp_path / 'set'}#test", "train")[0].question == "test?"
    put(tmp_path / "set" / "test.jsonl", [{"question": "another", "answer": "x"}])
    assert rows(f"{tmp_path / 'set'}#test", "train")[0].question == "another?"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there are no rows in"),
        ("{", "line 1 of .* is not JSON"),
        ("\n[]", "line 2 of .* is no JSON object"),
        ('{"answer": "x"}', "row 1 of .* has no question"),
        ('{"question": " ", "answer": "x"}', "row 1 of .* has no question"),
        ('{"question": "q"}', "row 1 of .* has no answers"),
        ('{"question": "q", "answer": []}', r"row 1 of .* has no answers \(answer: empty\)"),
        (
            '{"question": "q", "answers": {"text": [], "answer_start": []}}',
            r"row 1 of .* no answers \(answers: empty\)",
        ),
        ('{"question": "q", "answer": {"value": "<unk>", "aliases": []}}', r"row 1 of .* no answers \(answer: empty\)"),
        ('{"question": "q", "golden_answers": [null, ""]}', r"row 1 of .* has no answers \(golden_answers: empty\)"),
        ('{"question": "q", "answer": "x", "prompt": [{"role": "assistant", "content": "c"}]}', "has a prompt"),
    ],
)
def test_files_that_are_none_are_one_sentence(tmp_path, text, words):
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(ValueError, match=words) as error:
        rows(str(tmp_path / "a.jsonl"), "train")
    assert "\n" not in str(error.value)


def test_a_parquet_file_that_is_none(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"rubbish")
    with pytest.raises(ValueError, match="is no Parquet file"):
        rows(str(tmp_path / "a.parquet"), "train")
    with pytest.raises(ValueError, match=r"no such file; name a file of questions"):
        rows(str(tmp_path / "b.parquet"), "train")


def data_env(tmp_path, **options):
    (tmp_path / "wiki.jsonl").write_text('{"id": "1", "contents": "\\"It\\"\\nIt was written by Ada."}\n')
    data = put(tmp_path / "a.parquet", [SEARCH_R1, {**SEARCH_R1, "prompt": None, "id": "b"}])
    retriever = {"name": "search", "bm25": {"corpus": str(tmp_path / "wiki.jsonl")}}
    return resolve("envs", {"name": "search_qa", "data": data, "retriever": retriever, **options})


def test_questions_of_a_file_are_played_with_a_retriever_of_the_catalogue(tmp_path):
    entry = data_env(tmp_path)
    listed, words = tasks_of(entry), prompt_of(entry)
    env = entry.hooks.make(entry.config)
    first = env.reset(listed[0])
    assert words.first(first) == PROMPT  # the row's own prompt
    assert words.first(env.reset(listed[1])).endswith(" Question: who wrote it?\n")
    env.reset(listed[0])
    seen = env.step("<search>written by whom</search>").observation
    assert seen.text == '\n\n<information>Doc 1(Title: "It") It was written by Ada.</information>\n\n'
    assert not seen.actions
    end = env.step("<think>easy</think><answer>ada</answer>")
    assert (end.reward, end.terminated, end.info["success"], end.info["retrieved"]) == (1.0, True, True, 1.0)
    assert entry.hooks.find(entry.config, listed[1].key) == listed[1] and entry.hooks.kind(listed[0]) == "nq"
    assert "a.parquet" in entry.hooks.benchmark(entry.config)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"data": "a.jsonl"}, "questions of your own need a retriever"),
        ({"data": "a.jsonl", "world": "tiny", "retriever": {"name": "search"}}, "from data or from a world"),
        ({"split": "dev"}, "split = 'dev': a world has the splits train, valid, test"),
        ({"reward": {"em": 0}}, "nothing is rewarded"),
        ({"reward": {"bleu": 1}}, "em"),
        ({"top_k": 0}, "top_k"),
        ({"wrold": "tiny"}, "did you mean world"),
    ],
)
def test_options_that_cannot_work(options, words):
    with pytest.raises(ValueError, match=words):
        validate(Config, options, "env")


@pytest.mark.parametrize(
    ("retriever", "words"),
    [
        ({"name": "serach"}, "did you mean search"),
        ({"name": "search", "bm25": {"corpus": "/nowhere.jsonl"}}, "bm25.corpus = '/nowhere.jsonl': no such file"),
        ({"name": "search", "backend": "bm26"}, r"retriever\.backend = 'bm26'"),
    ],
)
def test_a_retriever_that_cannot_be_made_is_told_before_anything_is_played(retriever, words):
    with pytest.raises(ValueError, match=words):
        catalogue.load("envs", "search_qa").tasks(Config(retriever=retriever))
