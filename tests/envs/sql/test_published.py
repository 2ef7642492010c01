"""Files of BIRD and Spider: tasks, scores by hand, sentences for what is wrong with them."""

import json

import pytest

from agentrl.cli import main
from agentrl.config import resolve
from agentrl.env import panel_tasks, tasks_of
from agentrl.envs.sql import Config, gold, kind, make, tasks
from agentrl.envs.sql.published import orders
from agentrl.gym import check_env
from agentrl.tool import ToolFault, action as tool_action
from tests.envs.sql.files import bird, spider


def answered(config: Config, number: int, sql: str) -> dict[str, float]:
    """The signals of an answer to the task of this number."""
    env = make(config)
    env.reset(tasks(config)[number])
    result = env.step(tool_action.call("answer", sql=sql))
    env.close()
    assert result.terminated
    return dict(result.info["signals"])


def test_bird(tmp_path):
    config = Config(data=str(bird(tmp_path)), split="test")
    first, second = tasks(config)
    assert first.key == "sql/dev/california_schools/0" and kind(first) == "simple" and kind(second) == "moderate"
    env = make(config)
    text = env.reset(first).text
    assert text.startswith("What is the highest") and text.endswith("Evidence: average math score refers to AvgScrMath")
    assert "Evidence" not in make(config).reset(second).text
    assert (
        "Evidence"
        not in make(config.model_copy(update={"evidence": False}))
        .reset(tasks(config.model_copy(update={"evidence": False}))[0])
        .text
    )
    assert env.step(tool_action.call("list_tables")).observation.text == "schools, satscores"
    assert "CREATE TABLE schools" in env.step(tool_action.call("schema", table="Schools")).observation.text
    told = env.step(tool_action.call("query", sql="SELECT * FROM satscores")).observation.text
    assert told.splitlines() == [
        "cds | AvgScrMath | NumTstTakr",
        "1 | 510 | 80",
        "2 | 480 | 60",
        "3 | NULL | 0",
        "(3 rows)",
    ]
    assert env.step(gold(first)).info["success"]


def test_scores_of_bird_by_hand(tmp_path):
    config = Config(data=str(bird(tmp_path)), split="test")
    assert answered(config, 0, "SELECT 510") == {
        "correct": 1.0,
        "ran": 1.0,
        "shown": 1.0,
    }  # one database: cannot be told
    assert answered(config, 0, "SELECT 510.0000001")["correct"] == 1.0
    assert answered(config, 0, "SELECT '510'")["correct"] == 0.0
    assert answered(config, 0, "SELECT nothing FROM nowhere") == {"correct": 0.0, "ran": 0.0, "shown": 0.0}
    # The second gold query orders: the same rows in another order are wrong, unless BIRD's own rule is taken.
    upwards = "SELECT School FROM schools JOIN satscores ON CDSCode = cds ORDER BY NumTstTakr"
    assert answered(config, 1, upwards)["correct"] == 0.0
    assert answered(config, 1, f"{upwards} DESC")["correct"] == 1.0
    by_sets = config.model_copy(update={"compare": "bird"})
    assert answered(by_sets, 1, upwards)["correct"] == 1.0


def test_a_test_suite_tells_what_one_database_cannot(tmp_path):
    config = Config(data=str(spider(tmp_path)), split="test")
    assert [kind(task) for task in tasks(config)] == ["dev", "dev"]
    assert answered(config, 0, "SELECT 3") == {"correct": 0.0, "ran": 1.0, "shown": 1.0}
    assert answered(config, 0, "select count(Name) from singer") == {"correct": 1.0, "ran": 1.0, "shown": 1.0}
    assert answered(config, 1, "SELECT name FROM singer WHERE age >= 41")["correct"] == 1.0
    assert answered(config, 1, "SELECT name FROM singer WHERE name = 'Bob'") == {
        "correct": 0.0,
        "ran": 1.0,
        "shown": 1.0,
    }


def test_splits_of_a_folder_share_no_database(tmp_path):
    folder = str(spider(tmp_path))
    parts = {s: {t.params["db_id"] for t in tasks(Config(data=folder, split=s))} for s in ("train", "valid", "test")}
    assert parts["test"] == {"concert_singer"} and all(parts.values())
    assert not parts["train"] & parts["valid"] and len(parts["train"] | parts["valid"]) == 30
    assert len(tasks(Config(data=folder, split="all"))) == 32


def test_splits_of_one_file_share_no_database(tmp_path):
    spider(tmp_path)
    file = str(tmp_path / "train_spider.json")
    parts = {s: {t.params["db_id"] for t in tasks(Config(data=file, split=s))} for s in ("train", "valid", "test")}
    assert all(parts.values()) and sum(map(len, parts.values())) == 20 == len(set.union(*parts.values()))


@pytest.mark.parametrize("prompt", ["chat", "instruct"])
def test_questions_of_files_keep_the_promises_of_an_environment(tmp_path, prompt):
    entry = resolve("envs", {"name": "sql", "data": str(bird(tmp_path)), "split": "test", "prompt": prompt})
    assert check_env(entry, tasks=1, steps=4) == []
    key = tasks_of(entry)[1].key
    assert panel_tasks(entry, [key])[0].key == key


def test_players_of_files_know_the_right_query(tmp_path, capsys):
    words = ["eval", "sql", f"data={bird(tmp_path)}", "split=test", "--json", "--policy"]
    for player in ("oracle", "expert"):
        assert main([*words, player]) == 0
        assert json.loads(capsys.readouterr().out)["success_rate"] == 1.0


def test_a_right_query_that_fails_is_nobodys_fault(tmp_path):
    folder = bird(tmp_path)
    rows = json.loads((folder / "dev.json").read_text())
    rows[0]["SQL"] = "SELECT missing FROM schools"
    (folder / "dev.json").write_text(json.dumps(rows))
    with pytest.raises(ToolFault, match=r"right query fails .*no such column: missing"):
        answered(Config(data=str(folder), split="test"), 0, "SELECT 1")


@pytest.mark.parametrize(
    ("sql", "does"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("select a from t order\n by a limit 1", True),
        ("SELECT a FROM t WHERE b = (SELECT b FROM t ORDER BY b LIMIT 1)", False),
        ("SELECT 'order by' FROM t", False),
        ("SELECT rank() OVER (ORDER BY a) FROM t", False),
        ("SELECT a FROM (SELECT 1) ORDER BY a", True),
        ("SELECT 'it''s' FROM t ORDER BY 1", True),
        ("SELECT 'open", False),
    ],
)
def test_only_an_outer_order_counts(sql, does):
    assert orders(sql) == does


BROKEN = {
    "no file": (lambda folder: (folder / "dev.json").unlink(), "has none of dev.json"),
    "no JSON": (lambda folder: (folder / "dev.json").write_text("{"), "dev.json"),
    "no list": (lambda folder: (folder / "dev.json").write_text("{}"), "must be a JSON list of objects"),
    "empty": (lambda folder: (folder / "dev.json").write_text("[]"), "there are no rows in"),
    "no object": (lambda folder: (folder / "dev.json").write_text("[1]"), "row 0 of"),
    "no query": (
        lambda folder: (folder / "dev.json").write_text('[{"db_id": "x", "question": "y"}]'),
        "has no SQL (or query): it has db_id, question",
    ),
    "no question": (
        lambda folder: (folder / "dev.json").write_text('[{"db_id": "x", "question": " ", "SQL": "SELECT 1"}]'),
        "has no question",
    ),
    "a path": (
        lambda folder: (folder / "dev.json").write_text('[{"db_id": "../x", "question": "y", "SQL": "SELECT 1"}]'),
        "is no name of a folder",
    ),
    "dots": (
        lambda folder: (folder / "dev.json").write_text('[{"db_id": "..", "question": "y", "SQL": "SELECT 1"}]'),
        "is no name of a folder",
    ),
    "no database": (
        lambda folder: (folder / "dev.json").write_text('[{"db_id": "x", "question": "y", "SQL": "SELECT 1"}]'),
        "fetch the databases too",
    ),
    "no folder": (lambda folder: (folder / "dev_databases").rename(folder / "elsewhere"), "env.databases"),
    "shared": (
        lambda folder: (folder / "train.json").write_text((folder / "dev.json").read_text()),
        "'california_schools' is in",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_with_files_is_said_in_a_sentence(tmp_path, capsys, name):
    breaks, said = BROKEN[name]
    breaks(bird(tmp_path))
    split = "train" if name == "shared" else "test"
    assert main(["eval", "sql", f"data={tmp_path}", f"split={split}", "--policy", "oracle", "--tasks", "1"]) == 2
    told = capsys.readouterr().err.strip()
    assert said in told and "\n" not in told and "Traceback" not in told


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["data=/no/such/place"], "no such file or folder"),
        (["rows=some.jsonl"], "read by env.data"),
        (["databases=/tmp"], "give env.data too"),
        (["data=/no/such/place", "prompt=compact"], "take instruct or chat"),
        (["tables=4"], "tables"),
        (["level=harder"], "level"),
        (["level=hard", "tables=1"], "tables"),
    ],
)
def test_options_that_do_not_go_together_are_named(options, said, capsys):
    assert main(["eval", "sql", *options, "--policy", "random", "--tasks", "1"]) == 2
    told = capsys.readouterr().err.strip()
    assert said in told and "Traceback" not in told
