"""Queries of an agent can neither write, nor hang, nor take the memory."""

import hashlib
import os
import sqlite3
import threading
import time

import pytest

from agentrl.envs.sql.guarded import Limits, Source, run_query
from agentrl.tool import ToolFault

SMALL = Source("small", "CREATE TABLE t (a INTEGER, b TEXT); INSERT INTO t VALUES (1, 'x'), (2, 'y'), (3, 'z');")
LIMITS = Limits(steps=2_000_000, seconds=20.0, memory=32 << 20)
MANY = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n{stop}) "
LONG = MANY.format(stop=" WHERE i < 20000")


def test_a_query_gives_its_columns_and_rows():
    found = run_query(SMALL, "SELECT b, a * 1.5 AS c, NULL, x'00ff' FROM t ORDER BY a DESC", LIMITS)
    assert found.columns[:2] == ("b", "c") and not found.error
    assert found.rows[0] == ("z", 4.5, None, b"\x00\xff") and len(found.rows) == 3


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("ATTACH DATABASE '/tmp/agentrl-attached.db' AS other", "authoriz"),
        ("ATTACH DATABASE ':memory:' AS other", "authoriz"),
        ("DETACH DATABASE main", "authoriz"),
        ("VACUUM INTO '/tmp/agentrl-copy.db'", "authoriz"),
        ("PRAGMA query_only = OFF", "authoriz"),
        ("PRAGMA hard_heap_limit = 0", "authoriz"),
        ("PRAGMA table_info(t)", "authoriz"),
        ("INSERT INTO t VALUES (4, 'w')", "authoriz"),
        ("UPDATE t SET a = 0", "authoriz"),
        ("DELETE FROM t", "authoriz"),
        ("DROP TABLE t", "authoriz"),
        ("CREATE TABLE u (a)", "authoriz"),
        ("CREATE TEMP TABLE u (a)", "authoriz"),
        ("CREATE TEMP VIEW v AS SELECT 1", "authoriz"),
        ("REINDEX", "no query"),
        ("ANALYZE", "authoriz"),
        ("BEGIN", "authoriz"),
        ("SAVEPOINT s", "authoriz"),
        ("SELECT load_extension('/lib/x.so')", "authoriz"),
        ("SELECT writefile('/tmp/x', 'y')", ""),
        ("SELECT readfile('/etc/passwd')", ""),
        ("SELECT random()", "authoriz"),
        ("SELECT 1; DROP TABLE t", "one statement"),
        ("", "no query"),
        ("-- nothing", "no query"),
        ("SELECT * FROM nowhere", "no such table: nowhere"),
        ("SELECT 'a", "unrecognized token"),
        ("SELECT\0 1", "zero byte"),
        ("SELECT " + "(" * 2000 + "1" + ")" * 2000, ""),
        ("SELECT " + "1 + " * 20000 + "1", ""),
        (" UNION ALL ".join(["SELECT 1"] * 200), "too many terms"),
        ("SELECT ?", ""),
        # without end, or nearly so
        (MANY.format(stop="") + "SELECT count(*) FROM n", "stopped after 2,000,000 instructions"),
        (MANY.format(stop="") + "SELECT i FROM n", "more than 10,000 rows"),
        (LONG + "SELECT count(*) FROM n a, n b, n c", "stopped after"),
        ("SELECT count(*) FROM t a, t b, t c, t d, t e, t f, t g, t h, t i, t j, t k, t l, t m, t n", "stopped after"),
        # memory
        ("SELECT zeroblob(2000000000)", "too big"),
        ("SELECT hex(zeroblob(900000))", "too big"),
        (LONG + "SELECT group_concat(printf('%.*c', 1000, 'x')) FROM n", "too big"),
        (LONG + "SELECT printf('%.*c', 100000, i) AS s FROM n ORDER BY s", "memory"),
        (LONG + "SELECT count(*) FROM (SELECT DISTINCT printf('%.*c%d', 100000, 'x', i) FROM n)", "memory"),
        (LONG + "SELECT printf('%.*c', 100000, 'x') FROM n", "bytes"),
    ],
)
def test_attacks_get_a_text_and_harm_nothing(sql, said):
    began = time.process_time()
    found = run_query(SMALL, sql, LIMITS)
    assert found.error and said in found.error and not found.rows
    assert time.process_time() - began < 2, "the work is done elsewhere"
    assert run_query(SMALL, "SELECT sum(a), count(*) FROM t", LIMITS).rows == ((6, 3),)
    assert not os.path.exists("/tmp/agentrl-attached.db") and not os.path.exists("/tmp/agentrl-copy.db")


def test_one_instruction_that_takes_long_is_ended_by_the_clock():
    # printf writes two thousand million characters, one by one, in one instruction; no budget is looked at meanwhile
    found = run_query(SMALL, "SELECT printf('%.*c', 2000000000, 'x')", LIMITS._replace(seconds=0.3))
    assert "more than 0.3 seconds" in found.error
    assert run_query(SMALL, "SELECT 1", LIMITS).rows == ((1,),)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "with ? and # in its name.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE t (a, b); INSERT INTO t VALUES (1, x'ff61'), (2, 'ok');")
    connection.execute("INSERT INTO t VALUES (3, CAST(x'ff62' AS TEXT))")  # no UTF-8
    connection.commit()
    connection.close()
    return path


def test_a_file_is_read_and_stays_as_it_was(file):
    source = Source(str(file), file=str(file))
    before = hashlib.sha256(file.read_bytes()).hexdigest(), sorted(os.listdir(file.parent))
    assert run_query(source, "SELECT * FROM t", LIMITS).rows == (
        (1, b"\xffa"),
        (2, "ok"),
        (3, "\N{REPLACEMENT CHARACTER}b"),
    )
    for sql in ("DELETE FROM t", "PRAGMA journal_mode = WAL", "PRAGMA writable_schema = ON", "VACUUM"):
        assert run_query(source, sql, LIMITS).error
    assert (hashlib.sha256(file.read_bytes()).hexdigest(), sorted(os.listdir(file.parent))) == before


@pytest.mark.parametrize("content", [None, b"no database at all, but a text of some length" * 50])
def test_a_lost_database_is_nobodys_query(tmp_path, content):
    path = tmp_path / "lost.sqlite"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ToolFault, match=r"lost\.sqlite"):
        run_query(Source(str(path), file=str(path)), "SELECT * FROM sqlite_master", LIMITS)


def test_more_databases_than_are_kept_open():
    sources = [Source(f"made {i}", f"CREATE TABLE t (a); INSERT INTO t VALUES ({i});") for i in range(70)]
    for _ in range(2):
        assert [run_query(one, "SELECT a FROM t", LIMITS).rows[0][0] for one in sources] == list(range(70))


def test_threads_do_not_mix_their_replies():
    sources = [Source(f"of thread {i}", f"CREATE TABLE t (a); INSERT INTO t VALUES ({i});") for i in range(4)]
    wrong = []

    def ask(i):
        for n in range(20):
            rows = run_query(sources[i], f"SELECT a, {n} FROM t", LIMITS).rows
            if rows != ((i, n),):
                wrong.append((i, n, rows))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
