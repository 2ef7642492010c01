"""Checks of rows that a user brings, on rows worked by hand."""

import json
import random

import pytest

from agentrl.cli import main
from agentrl.preflight.rows import check_rows, read_splits
from agentrl.preflight.rows.duplicates import near_pairs

ADA = "Which city on the river Thames was the birthplace of the woman who wrote the first published program"


def rows(path, told):
    path.write_text("".join((json.dumps(row) if isinstance(row, dict) else row) + "\n" for row in told))
    return str(path)


def found(source, held_out="", section=None):
    audit = check_rows(read_splits(source, held_out), section, None, 0)
    return [(finding.kind, finding.rows) for finding in audit.findings]


def test_duplicates_contradictions_and_near_duplicates_by_hand(tmp_path):
    source = rows(
        tmp_path / "a.jsonl",
        [
            {"id": 1, "question": "Who wrote it?", "answer": "Ada"},
            "",
            {"id": 2, "question": "Who wrote it?", "answer": "Ada"},  # line 3: equal but for its id
            {"id": 3, "question": " who  WROTE it? ", "answer": "Bob"},  # line 4: the same question, another answer
            {"id": 4, "question": f"{ADA}?", "answer": "London"},
            # 17 words make 15 pieces of three; the last word is added, so 15 pieces are shared of 16: 94%
            {"id": 5, "question": f"{ADA} ever?", "answer": "London"},
            {"id": 6, "question": "who wrote IT ?", "answer": "Ada"},  # a space before the mark: another text
        ],
    )
    # "who wrote it" is one piece, so line 7 has all pieces of line 1.
    assert found(source) == [
        ("duplicate", ("line 1", "line 3")),
        ("contradiction", ("line 1", "line 4")),
        ("near", ("line 1", "line 7")),
        ("near", ("line 5", "line 6")),
    ]
    (text,) = [one.text for one in check_rows(read_splits(source), None, None, 0).findings if "line 6" in one.text]
    assert text == (
        "line 5 and line 6 ask nearly the same question (94% of their three-word pieces are equal); look at them, and "
        "keep one"
    )


def test_problems_of_one_template_with_other_numbers_are_no_pair():
    texts = [f"{ADA} with {n} lines?" for n in (3, 4)] + [f"{ADA} with 3 lines or so?"]
    assert list(near_pairs(texts, 0.8)) == [(0, 2)]


@pytest.mark.parametrize("seed", range(3))
def test_near_pairs_are_those_of_the_slow_comparison(seed):
    rng = random.Random(seed)
    texts = []
    for _ in range(40):
        words = [rng.choice("abcdefghijklmnopqrstuvwxyz") * 2 for _ in range(40)]
        texts.append(" ".join(words))
        for _ in range(rng.randrange(3)):
            words = list(words)
            words[rng.randrange(40)] = "other"
            texts.append(" ".join(words))

    def pieces(text):
        words = text.split()
        return {tuple(words[i : i + 3]) for i in range(len(words) - 2)}

    sets = [pieces(text) for text in texts]
    slow = {
        (i, j) for j in range(len(texts)) for i in range(j) if len(sets[i] & sets[j]) / len(sets[i] | sets[j]) >= 0.8
    }
    assert set(near_pairs(texts, 0.8)) == slow and len(slow) > 10


def test_leaks_between_splits(tmp_path):
    rows(tmp_path / "train.jsonl", [{"question": "a b c", "answer": "1"}, {"question": "d", "answer": "2"}])
    rows(tmp_path / "test.jsonl", [{"question": "A b  c", "answer": "1"}, {"question": "e", "answer": "3"}])
    assert found(str(tmp_path)) == [("leak", ("line 1 of test", "line 1 of train"))]
    one = rows(tmp_path / "more.jsonl", [{"question": "e", "answer": "3"}])
    assert found(one, str(tmp_path / "test.jsonl")) == [("leak", ("line 2 of held-out rows", "line 1 of the source"))]


def test_a_training_row_near_a_held_out_row_is_a_leak_beside_an_equal_one(tmp_path):
    told = [{"question": f"{ADA} for a machine?", "answer": "London"}]
    rows(tmp_path / "test.jsonl", told)
    rows(tmp_path / "train.jsonl", [*told, {"question": f"{ADA} for a loom?", "answer": "London"}])
    assert ("leak", ("line 1 of test", "line 2 of train")) in found(str(tmp_path))


def test_columns_by_hand(tmp_path):
    told = [{"question": f"q{i}", "answer": str(i), "level": i, "source": "s"} for i in range(20)]
    told[3]["level"] = "hard"
    told[4]["level"] = float("nan")
    told[5]["answer"] = " "
    told[6]["question"] = None
    del told[7]["source"]
    assert found(rows(tmp_path / "a.jsonl", told)) == [
        ("type", ("line 4",)),
        ("number", ("line 5",)),
        ("missing", ("line 8",)),
        ("empty", ("line 7",)),
        ("empty", ("line 6",)),
    ]


def test_mixed_types_and_nan_in_parquet(tmp_path):
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({"question": ["a", "b", None], "answer": [1.0, float("nan"), 3.0], "level": [[1], [], [2]]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert found(str(tmp_path / "a.parquet")) == [("number", ("row 1",)), ("empty", ("row 2",)), ("empty", ("row 1",))]


def test_rows_of_one_file_that_an_environment_divides_by_keys(tmp_path):
    """Two rows with one question under keys of which one is a test key: a leak, though the file has no splits."""
    from agentrl.envs.calculator import Config, tasks

    keys = [f"k{i}" for i in range(50)]
    told = [{"key": key, "story": f"story {key}", "target": 1} for key in keys]
    source = rows(tmp_path / "a.jsonl", told)
    assert found(source, section={"name": "calculator"}) == []
    held = {task.key.rpartition("/")[2] for task in tasks(Config(rows=source, split="test"))}
    test = next(i for i, key in enumerate(keys) if key in held)
    train = next(i for i, key in enumerate(keys) if key not in held)
    told[test]["story"], told[train]["story"] = "Story  one", "story ONE"
    assert found(rows(tmp_path / "a.jsonl", told), section={"name": "calculator"}) == [
        ("leak", (f"line {test + 1}", f"line {train + 1}"))
    ]


def test_a_class_of_yours_says_which_rows_it_cannot_take(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_env.py").write_text(
        '''
"""Own."""
from agentrl.tool_env import environment

class Own:
    def reset(self, a: int, name: str) -> str:
        self.a = a
        if a > 5:
            raise ValueError("a is at most 5")
        self.share = 1 / (a - 3)
        return f"{name} {a}"

    def look(self) -> str:
        """Look."""
        return "x"

    def reward(self, answer: str, target: str) -> float:
        return float(answer == target)

Config, make, tasks, prompt = environment(Own, rows=[{"a": 1, "name": "n", "target": "t"}])
'''
    )
    monkeypatch.syspath_prepend(tmp_path)
    good = {"a": 1, "name": "n", "target": "t"}
    bad = [{**good, "a": "1"}, {"a": 2, "name": "n"}, {**good, "a": True}, {**good, "name": None}]
    source = rows(tmp_path / "a.jsonl", [good, *bad])
    assert main(["check", source, "--env", "own_env", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    unread = [finding["text"] for finding in told["findings"] if finding["kind"] == "unreadable"]
    assert unread == [
        "line 2: this row has a = '1', and reset takes int: change its type",
        "line 3: Own.reward needs 'target', and there is only a, answer, calls, name, seed, texts, turns",
        "line 4: this row has a = True, and reset takes int: change its type",
        "line 5: this row has name = None, and reset takes str: change its type",
    ]
    assert told["notes"] == [
        "lengths, answers and solutions were not checked, because 4 rows cannot be read: mend these rows first"
    ]
    source = rows(tmp_path / "b.jsonl", [good, {**good, "a": 6}, {**good, "a": 3}])
    assert main(["check", source, "--env", "own_env"]) == 1
    out, err = capsys.readouterr()
    assert "reset: line 2 cannot begin an episode (a is at most 5): mend the row" in err
    assert "reset: line 3 cannot begin an episode (ZeroDivisionError: division by zero): mend the row" in err
    assert "all: 3 rows; first prompts in words: median" in out and out.endswith("b.jsonl: 2 findings\n")


def test_types_inside_lists_and_tables_are_checked(tmp_path, monkeypatch, capsys):
    (tmp_path / "shelves.py").write_text(
        '''
"""Shelves."""
from typing import Any, Literal
from agentrl.tool_env import environment

class Shelf:
    def __init__(self, **books): ...

class Own:
    def reset(
        self, shelves: dict[str, list[str]], size: float | None, kind: Literal["a", "b"], more: list[Shelf]
    ) -> str:
        return " ".join(shelves)

    def look(self) -> str:
        """Look."""
        return "x"

    def reward(self, answer: str) -> float:
        return 0.0

Config, make, tasks, prompt = environment(Own, rows=[])
'''
    )
    monkeypatch.syspath_prepend(tmp_path)
    good = {"shelves": {"top": ["Emma"], "low": []}, "size": 1, "kind": "a", "more": [{}]}  # a class is not checked
    bad = [
        {**good, "shelves": {"top": ["Emma", 3]}},
        {**good, "shelves": {"top": "Emma"}},
        {**good, "shelves": ["Emma"]},
        {**good, "size": "1"},
        {**good, "size": None, "kind": "c"},
    ]
    source = rows(tmp_path / "a.jsonl", [good, *bad])
    assert main(["check", source, "--env", "shelves", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    takes = "and reset takes dict[str, list[str]]: change its type"
    assert [finding["text"] for finding in told["findings"] if finding["kind"] == "unreadable"] == [
        f"line 2: this row has shelves['top'][1] = 3, {takes}",
        f"line 3: this row has shelves['top'] = 'Emma', {takes}",
        f"line 4: this row has shelves = ['Emma'], {takes}",
        "line 5: this row has size = '1', and reset takes float | None: change its type",
        "line 6: this row has kind = 'c', and reset takes Literal['a', 'b']: change its type",
    ]


def test_a_right_query_that_fails_and_a_question_without_a_database_column(tmp_path, capsys):
    from tests.envs.sql.files import BIRD, bird

    bird(tmp_path)
    broken = {**BIRD[0], "question_id": 2, "question": "And the lowest?", "SQL": "SELECT MIN(Nothing) FROM schools"}
    (tmp_path / "dev.json").write_text(json.dumps([*BIRD, broken]))
    assert main(["check", str(tmp_path / "dev.json"), "--env", "sql"]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("unanswerable: the solution in row 2 does not pass (") and "3 solutions played" in out
    (tmp_path / "dev.json").write_text(json.dumps([BIRD[0], {**BIRD[1], "db_id": ""}]))
    assert main(["check", str(tmp_path / "dev.json"), "--env", "sql"]) == 1
    assert "unreadable: row 1: this row has no db_id" in capsys.readouterr().err
    (tmp_path / "dev.json").write_text(json.dumps(BIRD))
    assert main(["check", str(tmp_path / "dev.json"), "--env", "sql", "--play", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["holds"], told["played"], told["rows"]) == (True, 1, {"all": 2})
    assert told["notes"] == ["solutions of the first 1 of 2 rows were played: --play 2 plays all"]


def test_code_whose_solution_fails_its_own_tests(tmp_path, capsys):
    from tests.envs.code_repair.test_code_repair import MBPP

    wrong = {**MBPP, "task_id": 602, "text": "Write a function to triple.", "test_list": ["assert twice([1]) == [3]"]}
    source = rows(tmp_path / "a.jsonl", [MBPP, wrong])
    assert main(["check", source, "--env", "code_repair", "mode=write"]) == 1
    err = capsys.readouterr().err
    assert "unanswerable: the solution in line 2 does not pass (reward 0, the environment said: AssertionError" in err


def test_a_right_answer_that_was_read_as_a_sentence(tmp_path, capsys):
    answers = [
        "Six times seven. The answer is: 42", "Therefore $x=\\boxed 5$.", "\\boxed{2^{n-1}}", "10 north",
        "5 million", "(1,2)", "no solution",
        "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "x = 1 \\text{ or } x = 2",
        "(-\\infty, 3) \\cup (5, \\infty)",
        "As one sees at once, both of these numbers have to be even.", "9" * 1200,
    ]  # fmt: skip
    source = rows(tmp_path / "a.jsonl", [{"question": f"Q {i} {i}?", "answer": one} for i, one in enumerate(answers)])
    assert main(["check", source, "--env", "code_math", "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    found = {row: one["text"] for one in findings if one["kind"] == "unanswerable" for row in one["rows"]}
    assert set(found) == {"line 11", "line 12"}
    assert "which no plain answer equals: give the answer alone" in found["line 11"]
    assert "has 1200 characters, more than 1000" in found["line 12"]


def test_an_answer_that_no_document_holds(tmp_path, capsys):
    corpus = [{"id": "1", "contents": '"It"\nThe  BOOK, by Ada.'}, {"id": "2", "contents": '"Oslo"\nA city.'}]
    corpus += [
        {"id": "3", "contents": "故宫\n故宫位于北京市中心。"},
        {"id": "4", "contents": "Cafe\u0301\nC# in 1900."},
    ]
    rows(tmp_path / "wiki.jsonl", corpus)
    told = [
        {"question": "who", "golden_answers": ["nobody", "the book by Ada"]},  # without case, mark and article
        {"question": "where", "golden_answers": ["Os"]},  # a part of a word is no answer
        {"question": "is it", "golden_answers": ["yes"]},
        {"question": "哪里", "golden_answers": ["北京"]},
        {"question": "哪儿", "golden_answers": ["南京"]},
        {"question": "what", "golden_answers": ["Café"]},
    ]
    source = rows(tmp_path / "a.jsonl", told)
    retriever = f'retriever={{name="search", bm25={{corpus="{tmp_path / "wiki.jsonl"}"}}}}'
    assert main(["check", source, "--env", "search_qa", retriever, "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [(one["kind"], one["rows"]) for one in findings] == [("unanswerable", ["line 2", "line 5"])]


def test_lengths_in_tokens_of_a_recipe_with_a_model_folder(tmp_path, capsys):
    from tests.toys.language_model import model_folder

    model = model_folder(tmp_path / "model")
    source = rows(tmp_path / "a.jsonl", [{"story": "one two", "target": 1}, {"story": "word " * 400, "target": 2}])
    (tmp_path / "r.toml").write_text(
        f'[env]\nname = "calculator"\nprompt = "instruct"\n[model]\npath = "{model}"\n[engine]\nmax_context = 256\n'
    )
    assert main(["check", source, str(tmp_path / "r.toml"), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    (finding,) = told["findings"]
    assert (finding["kind"], finding["rows"]) == ("long", ["line 2"])
    longest = told["lengths"]["all"]["longest"]
    assert f"has up to {longest} tokens, and engine.max_context is 256" in finding["text"] and longest > 400
    assert told["lengths"]["all"]["unit"] == "tokens"
    assert main(["check", source, str(tmp_path / "r.toml"), "engine.max_context=4096"]) == 0
    new = '[env]\nname = "calculator"\n[model.new]\nhidden = 32\n'
    (tmp_path / "new.toml").write_text(new)
    assert main(["check", source, str(tmp_path / "new.toml")]) == 0
    assert "note: lengths are in words" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["check", "none.jsonl"], "no such file of rows: none.jsonl"),
        (["check", "a.jsonl", "--held-out", "none"], "not from none"),
        (["check", "a.jsonl", "no-such-recipe"], "no recipe 'no-such-recipe'"),
        (["check", "a.jsonl", "--env", "no_such"], "no_such"),
        (["check", "a.jsonl", "--env", "sokoban"], "environment sokoban cannot read rows of a user"),
        (["check", "a.jsonl", "split=test"], "split=test is an option of an environment: name it by --env"),
        (["check", "a.jsonl", "one", "two"], "one and two are two recipes"),
        (["check", "a.jsonl", "one", "--env", "sql"], "leave out --env sql"),
        (["check", "a.jsonl", "--env", "search_qa"], "need a retriever"),
        (["check", "a.jsonl", "--play", "-1"], "'-1'"),
        (["check", "a.jsonl#train"], "has no split 'train'"),
    ],
)
def test_bad_words_are_one_sentence(words, sentence, tmp_path, monkeypatch, capsys):
    from tests.cli.bad_words import complaint

    monkeypatch.chdir(tmp_path)
    rows(tmp_path / "a.jsonl", [{"question": "a", "answer": "b"}])
    assert complaint(words, tmp_path, capsys) == ""
    main(words)
    assert sentence in capsys.readouterr().err
