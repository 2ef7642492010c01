"""Generated questions: splits, soundness, scores, players, prompts, state."""

import json
import random
import sqlite3

import gymnasium
import pytest

from agentrl.chat import build_word_tokenizer
from agentrl.cli import main
from agentrl.config import resolve
from agentrl.env import panel_tasks, prompt_of, tasks_of
from agentrl.envs._rows import PARTS
from agentrl.envs.sql import EXPERTS, Config, benchmark, entities, expert, gold, kind, make, situation, tasks
from agentrl.envs.sql.database import plain_sql, problem_of
from agentrl.envs.sql.queries import KINDS, LEVELS, candidates, kinds_of, near_misses
from agentrl.envs.sql.questions import values_in, write_problem
from agentrl.envs.sql.themes import ENTITIES, THEMES, VALUES, entities_of
from agentrl.gym import check_env
from agentrl.tool import action as tool_action
from agentrl.types import Status
from tests.envs.sql.slow_compare import slow_same

SAMPLE = [(level, part, seed) for level in LEVELS for part in PARTS for seed in range(3)]


def problems():
    return [write_problem(level, 2, part, seed) for level, part, seed in SAMPLE]


def rows_of(source, sql):
    connection = sqlite3.connect(":memory:")
    connection.executescript(source.script)
    try:
        return connection.execute(sql).fetchall()
    except sqlite3.Error:
        return None
    finally:
        connection.close()


def test_no_table_of_one_part_is_in_another():
    tables = {part: {f"{t}_{e}" for t in THEMES for e in entities_of(t, part)} for part in PARTS}
    assert sum(map(len, tables.values())) == len(set.union(*tables.values())) == len(THEMES) * len(ENTITIES)
    for part, seed in [(part, seed) for part in PARTS for seed in range(4)]:
        assert {table.name for table in write_problem("easy", 3, part, seed).schema} <= tables[part]
    words = {part: {word for name in names for word in name.split("_")} for part, names in tables.items()}
    assert words["test"] | words["valid"] <= words["train"], "every word of a held-out name occurs in training"


def test_a_word_stands_in_one_kind_of_column():
    every = [word for values in VALUES.values() for word in values]
    assert len(every) == len(set(every))


def test_the_question_decides_the_query():
    for problem in problems():
        known = candidates(problem.schema, values_in(problem.query.question), tuple(KINDS))
        assert [one.sql for one in known if one.question == problem.query.question] == [problem.query.sql]
        assert len({one.sql for one in known}) == len(known)


def test_no_near_miss_and_no_constant_is_right_in_all_databases():
    for problem in problems():
        query, sources = problem.query, problem.databases
        results = [rows_of(source, query.sql) for source in sources]
        assert results[0] and any(cell not in (None, 0) for row in results[0] for cell in row)
        assert any(sorted(map(repr, one)) != sorted(map(repr, results[0])) for one in results[1:])
        misses = near_misses(query, problem.schema, values_in(query.question))
        assert len(misses) > 20
        rng = random.Random(query.sql)
        for miss in rng.sample(misses, 12):
            given = [rows_of(source, miss) for source in sources]
            same = [
                b is not None and len(a) == len(b) and len(a) < 6 and slow_same(a, b, query.ordered)
                for a, b in zip(results, given, strict=True)
            ]
            assert not all(same), (query, miss)


def test_near_misses_by_hand():
    problem = write_problem("easy", 1, "train", 0)
    table = problem.schema[0]
    number = table.numbers[0]
    above = next(
        q for q in candidates(problem.schema, [30], ["list"]) if f"{number} > 30" in q.sql and table.label in q.sql
    )
    misses = near_misses(above, problem.schema, [30])
    name = f"SELECT {table.label} FROM {table.name}"
    for wrong in ("", f" WHERE {number} >= 30", f" WHERE {number} < 30", f" WHERE {number} > 31"):
        assert f"{name}{wrong}" in misses
    assert above.sql not in misses


def test_the_same_seed_gives_the_same_problem():
    fresh = write_problem.__wrapped__("medium", 2, "valid", 3)
    assert fresh == write_problem("medium", 2, "valid", 3) != write_problem("medium", 2, "valid", 4)


def played(config: Config, number: int, *actions: str):
    env = make(config)
    env.reset(tasks(config)[number])
    results = [env.step(action) for action in actions]
    env.close()
    return results[-1]


def test_signals_by_hand():
    config = Config(level="easy", split="train", count=20)
    task = next(t for t in tasks(config) if kind(t) == "count" and "WHERE" in problem_of(t.params["made"]).query.sql)
    number = list(tasks(config)).index(task)
    problem = problem_of(task.params["made"])
    ((shown,),) = rows_of(problem.databases[0], problem.query.sql)
    assert played(config, number, gold(task)).info["signals"] == {"correct": 1.0, "ran": 1.0, "shown": 1.0}
    constant = played(config, number, tool_action.call("answer", sql=f"SELECT {shown}"))
    assert constant.info["signals"] == {"correct": 0.0, "ran": 1.0, "shown": 1.0}  # right by chance where it looked
    assert constant.terminated and constant.reward == 0.0 and not constant.info["success"]
    wrong = played(config, number, tool_action.call("answer", sql="SELECT"))
    assert wrong.info["signals"] == {"correct": 0.0, "ran": 0.0, "shown": 0.0}
    fenced = f"```sql\n{problem.query.sql};\n```"
    assert played(config, number, tool_action.answer(fenced)).reward == 1.0
    assert played(config, number, tool_action.answer("")).reward == 0.0


def test_a_failed_query_is_told_and_the_episode_goes_on():
    config = Config(split="train")
    result = played(config, 0, tool_action.call("query", sql="DROP TABLE x"))
    assert result.info["status"] == Status.TOOL_ERROR and not result.terminated
    assert result.observation.text.startswith("error: ")
    result = played(config, 0, tool_action.call("schema", table="nothing"))
    assert "there is no table 'nothing': the tables are" in result.observation.text


def test_an_episode_without_an_answer_is_scored():
    env = make(Config(split="train"))
    env.reset(tasks(Config(split="train"))[0])
    env.step(tool_action.call("list_tables"))
    verdict = env.cut()
    assert verdict.reward == 0.0 and verdict.info["signals"] == {"correct": 0.0, "ran": 0.0, "shown": 0.0}


def test_what_is_listed_grows_with_what_is_known():
    config = Config(level="easy", split="test", prompt="compact")
    env = make(config)
    task = tasks(config)[0]
    seen = env.reset(task)
    assert seen.actions == (tool_action.call("list_tables"),)
    seen = env.step(seen.actions[0]).observation
    schema = problem_of(task.params["made"]).schema
    assert seen.actions == tuple(tool_action.call("schema", table=table.name) for table in schema)
    seen = env.step(seen.actions[1]).observation
    names = [tool_action.read(action).items[0].name for action in seen.actions]
    assert names.count("schema") == 1 and names.count("query") >= 9 and "answer" not in names
    query = next(action for action in seen.actions if '"query"' in action)
    after = env.step(query).observation
    assert query not in after.actions and query.replace('"query"', '"answer"') in after.actions


@pytest.mark.parametrize("level", [*LEVELS, "all"])
def test_players(level, capsys):
    for name, least, most in (
        ("expert", 1.0, 1.0),
        ("oracle", 1.0, 1.0),
        ("random", 0.0, 0.5),
        ("careless:1", 0.0, 0.5),
    ):
        words = ["eval", "sql", f"level={level}", "split=test", "prompt=compact", "--policy", name, "--tasks", "4"]
        assert main([*words, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert least <= report["success_rate"] <= most and report["episodes"] == 4


def test_words_of_players_that_are_none(capsys):
    for name in ("genius", "expert:0.3", "careless:2"):
        assert main(["eval", "sql", "--policy", name, "--tasks", "1"]) == 2
        assert "Traceback" not in capsys.readouterr().err
    assert EXPERTS[0] == "expert"


def steps_of(config: Config, name: str = "expert", number: int = 0):
    """(observation, action) of an episode of a player."""
    env = make(config)
    task = tasks(config)[number]
    player = expert(env, name, 0)
    observation = env.reset(task)
    player.reset(task)
    found = []
    for _ in range(12):
        action = player.act(observation).action
        found.append((observation, action))
        result = env.step(action)
        observation = result.observation
        if result.terminated:
            break
    return found


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("prompt", ["compact", "instruct"])
def test_words_and_actions_go_together(prompt, level):
    config = Config(level=level, split="test", prompt=prompt)
    words = prompt_of(resolve("envs", {"name": "sql", "prompt": prompt}))
    for number in range(3):
        for observation, _ in steps_of(config, "oracle", number):
            written = [words.answer(action) for action in observation.actions]
            assert len(set(written)) == len(written), "no two actions are written alike"
            for action, text in zip(observation.actions, written, strict=True):
                parsed = words.parse(text, observation)
                assert (parsed.action, parsed.valid, parsed.calls) == (action, True, 1)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("tables", tool_action.call("list_tables")),
        ("Tables", tool_action.call("list_tables")),
        ("> schema club_member", tool_action.call("schema", table="club_member")),
        ("`query SELECT a FROM t WHERE b = 'x'`", tool_action.call("query", sql="SELECT a FROM t WHERE b = 'x'")),
        ("query SELECT a FROM t WHERE b = 'x'", tool_action.call("query", sql="SELECT a FROM t WHERE b = 'x'")),
        ("Action: answer: SELECT 1;\nThat is it.", tool_action.call("answer", sql="SELECT 1;")),
        ("tables now", None),
        ("query", None),
        ("SELECT 1", None),
        ("", None),
    ],
)
def test_what_a_language_model_writes_in_one_line(text, action):
    parsed = prompt_of(resolve("envs", {"name": "sql", "prompt": "instruct"})).parse(text, steps_of(Config())[0][0])
    assert (parsed.action if action else None, parsed.valid) == (action, action is not None)


def test_compact_words_are_tokens_that_occur_in_training():
    config = Config(level="all", split="test", prompt="compact")
    words = prompt_of(resolve("envs", {"name": "sql", "prompt": "compact"}))
    told = [f" {word}" for word in entities(config)]
    for number in range(20):
        train = config.model_copy(update={"split": "train"})
        for observation, action in steps_of(train, number=number):
            told += [
                words.first(observation),
                words.turn(observation),
                words.answer(action),
                f" {words.answer(action)}",
            ]
    tokenizer = build_word_tokenizer(told, entity_pattern="")
    for number in range(4):
        for observation, action in steps_of(config, number=number):
            for text in (words.answer(action), observation.text.rpartition(" of ")[0]):
                ids = tokenizer.encode(f" {text}", add_special_tokens=False)
                unknown = [w for w, i in zip(tokenizer.convert_ids_to_tokens(ids), ids, strict=True) if i == 1]
                assert len(unknown) <= 0.1 * len(ids), text  # sums and averages of numbers are spelled
            if tool_action.read(action).items[0].name != "list_tables":
                assert tokenizer.decode(tokenizer.encode(words.answer(action))) == words.answer(action)


def test_states_are_what_is_known_in_whatever_order():
    config = Config(level="easy", split="train")
    schema = problem_of(tasks(config)[0].params["made"]).schema
    one, two = (tool_action.call("schema", table=table.name) for table in schema)
    first = played(config, 0, tool_action.call("list_tables"), one, two).observation.state_key
    assert first == played(config, 0, tool_action.call("list_tables"), two, one, one).observation.state_key
    assert first != played(config, 0, tool_action.call("list_tables"), one).observation.state_key
    assert first != played(config, 1, tool_action.call("list_tables"), one, two).observation.state_key


def test_a_branch_goes_on_as_the_episode_did():
    config = Config(level="easy", split="train", prompt="compact")
    env = make(config)
    observation = env.reset(tasks(config)[0])
    observation = env.step(observation.actions[0]).observation
    kept, on = env.snapshot(), observation.actions[-1]
    told = env.step(on)
    other = make(config)
    other.reset(tasks(config)[0])
    assert other.restore(kept) == observation
    assert other.step(on) == told


def test_situations():
    labels = [situation(observation, action) for observation, action in steps_of(Config(level="hard", split="train"))]
    assert labels == [
        "nothing known: tables",
        "tables known: schema",
        "schema known: schema",
        "schemas known: query",
        "query run: answer",
    ]


@pytest.mark.parametrize("prompt", ["chat", "instruct", "compact"])
def test_it_keeps_the_promises_of_an_environment(prompt):
    assert check_env(resolve("envs", {"name": "sql", "prompt": prompt, "count": 50}), tasks=2, steps=8) == []


def test_panels_benchmark_and_gymnasium():
    entry = resolve("envs", {"name": "sql", "split": "test"})
    key = tasks_of(entry)[7].key
    assert key == "sql/gen/medium-2/test/7" and panel_tasks(entry, [key]) == [tasks_of(entry)[7]]
    assert benchmark(entry.config) == "sql-gen medium, 2 tables, test"
    for wrong in ("sql/gen/medium-2/test/x", "sql/gen/medium-9/test/1", "sql/other", "sql/gen/none-2/test/1"):
        with pytest.raises(ValueError, match="a key is sql/gen/LEVEL-TABLES/PART/NUMBER"):
            panel_tasks(entry, [wrong])
    env = gymnasium.make("agentrl.gym:agentrl/SQL-v0", level="easy")
    text, _ = env.reset(seed=0)
    assert text
    env.close()


def test_plain_sql():
    assert (
        plain_sql(" SELECT 1 ; ")
        == "SELECT 1"
        == plain_sql("```sql\nSELECT 1;\n```")
        == plain_sql("```\nSELECT 1\n```")
    )
    assert plain_sql("SELECT '```'") == "SELECT '```'"
    assert kinds_of("all") == tuple(KINDS)
