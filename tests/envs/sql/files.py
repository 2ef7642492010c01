"""Small data sets in the layouts of BIRD and Spider."""

import json
import sqlite3
from pathlib import Path

SCHOOLS = """
CREATE TABLE schools (CDSCode TEXT PRIMARY KEY, School TEXT, County TEXT);
CREATE TABLE satscores (cds TEXT, AvgScrMath INTEGER, NumTstTakr INTEGER);
INSERT INTO schools VALUES ('1', 'North High', 'Alameda'), ('2', 'South High', 'Alameda'), ('3', 'Lake High', 'Fresno');
INSERT INTO satscores VALUES ('1', 510, 80), ('2', 480, 60), ('3', NULL, 0);
"""
SINGERS = """
CREATE TABLE singer (Singer_ID INT, Name TEXT, Age INT);
INSERT INTO singer VALUES (1, 'Ann', 30), (2, 'Bob', 41), (3, 'Cy', 30);
"""
# As in BIRD's dev.json: question_id, db_id, question, evidence, SQL, difficulty.
BIRD = [
    {
        "question_id": 0,
        "db_id": "california_schools",
        "question": "What is the highest average math score in Alameda?",
        "evidence": "average math score refers to AvgScrMath",
        "SQL": "SELECT MAX(T2.AvgScrMath) FROM schools AS T1 INNER JOIN satscores AS T2 ON T1.CDSCode = T2.cds "
        "WHERE T1.County = 'Alameda'",
        "difficulty": "simple",
    },
    {
        "question_id": 1,
        "db_id": "california_schools",
        "question": "List the schools by their number of test takers, most first.",
        "evidence": "",
        "SQL": "SELECT T1.School FROM schools AS T1 INNER JOIN satscores AS T2 ON T1.CDSCode = T2.cds "
        "ORDER BY T2.NumTstTakr DESC",
        "difficulty": "moderate",
    },
]
# As in Spider's dev.json, whose `sql` is the parsed query.
SPIDER = [
    {
        "db_id": "concert_singer",
        "query": "SELECT count(*) FROM singer",
        "query_toks": ["SELECT", "count", "(", "*", ")", "FROM", "singer"],
        "query_toks_no_value": ["select", "count", "(", "*", ")", "from", "singer"],
        "question": "How many singers do we have?",
        "question_toks": ["How", "many", "singers", "do", "we", "have", "?"],
        "sql": {"select": [False, [[3, [0, [0, 0, False], None]]]], "limit": None},
    },
    {"db_id": "concert_singer", "query": "SELECT name FROM singer WHERE age > 30;", "question": "Who is over 30?"},
]


def database(path: Path, script: str) -> None:
    """A SQLite file made by a script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()


def bird(folder: Path) -> Path:
    """BIRD's dev set: dev.json, dev_databases/ID/ID.sqlite with a folder of descriptions."""
    database(folder / "dev_databases" / "california_schools" / "california_schools.sqlite", SCHOOLS)
    described = folder / "dev_databases" / "california_schools" / "database_description"
    described.mkdir()
    (described / "schools.csv").write_text("original_column_name,column_name\nCDSCode,CDSCode\n")
    (folder / "dev.json").write_text(json.dumps(BIRD))
    return folder


def spider(folder: Path) -> Path:
    """Spider: train_spider.json, dev.json and database/ID/ID.sqlite; the dev database has a test suite of two."""
    place = folder / "database"
    database(place / "concert_singer" / "concert_singer.sqlite", SINGERS)
    more = SINGERS.replace("(3, 'Cy', 30)", "(3, 'Cy', 50), (4, 'Di', 20)")
    database(place / "concert_singer" / "concert_singerdev_1.sqlite", more)
    (folder / "dev.json").write_text(json.dumps(SPIDER))
    train = []
    for i in range(30):
        database(place / f"other_{i}" / f"other_{i}.sqlite", SINGERS)
        train.append(
            {"db_id": f"other_{i}", "query": "SELECT max(Age) FROM singer", "question": "How old is the oldest?"}
        )
    (folder / "train_spider.json").write_text(json.dumps(train[:20]))
    (folder / "train_others.json").write_text(json.dumps(train[20:]))
    return folder
