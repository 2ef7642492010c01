"""Generated questions: a schema, a right query, the database that the agent sees, and further databases for tests.

A question is kept if three things hold. Its right query has a result that is not empty. The query has a different
result in another database, so that no constant is right. Each near miss has a different result in at least one of the
databases. The other databases follow test-suite accuracy (Zhong, Yu and Klein, arXiv:2010.02840).
"""

import functools
import random
import re
import sqlite3
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentrl.envs._rows import Part
from agentrl.envs.sql.compare import Row, same_result
from agentrl.envs.sql.guarded import Source
from agentrl.envs.sql.queries import JOINS, Query, candidates, kinds_of, near_misses
from agentrl.envs.sql.schema import Schema, draw_rows, draw_schema, script
from agentrl.envs.sql.themes import VALUES

VARIANTS = 3  # databases beside the one that is shown
TRIES = 200  # largest number of questions that are drawn for one seed
COUNTS = (1, 2, 3, 4)  # numbers of rows that a `having` question may name
WORDS = frozenset(word for values in VALUES.values() for word in values)


class Problem(NamedTuple):
    """A question with its right query and databases, the shown one first; all have the same tables."""

    query: Query
    schema: Schema
    databases: tuple[Source, ...]


def values_in(question: str) -> list[str | int]:
    """The words and numbers of a question that may be constants of a query."""
    found = re.findall(r"[A-Za-z]+|\d+", question)
    return list(dict.fromkeys(int(one) if one.isdigit() else one for one in found if one.isdigit() or one in WORDS))


@functools.lru_cache(maxsize=4096)
def write_problem(level: str, tables: int, part: Part, seed: int) -> Problem:
    """The problem of a seed.

    Args:
        level: kinds of queries, see `agentrl.envs.sql.queries.LEVELS`; `all` for every kind.
        tables: the number of tables of the database.
        part: the part to which these tables belong.
        seed: decides everything else.
    """
    name = f"sql-gen/{level}/{tables}/{part}/{seed}"
    rng = random.Random(name)
    kind = rng.choice([kind for kind in kinds_of(level) if tables > 1 or kind not in JOINS])
    for _ in range(TRIES):
        schema = draw_schema(rng, part, tables)
        scripts = [script(schema, draw_rows(rng, schema)) for _ in range(1 + VARIANTS)]
        opened = [_opened(text) for text in scripts]
        try:
            query = _ask(rng, schema, opened[0], kind)
            if query is not None and _is_sound(query, schema, opened):
                sources = tuple(Source(f"{name}/{i}", text) for i, text in enumerate(scripts))
                return Problem(query, schema, sources)
        finally:
            for connection in opened:
                connection.close()
    raise AssertionError(f"no question of kind {kind} for {name}")


def _opened(text: str) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.executescript(text)
    return connection


def _ask(rng: random.Random, schema: Schema, shown: sqlite3.Connection, kind: str) -> Query | None:
    """A query of this kind; None if there is no such query.

    If the query has a value, the shown database holds the value; that of a `having` query is one of COUNTS.
    """
    table = rng.choice(schema)
    value: str | int
    if kind == "having":
        value = rng.choice(COUNTS)
    else:
        column = rng.choice([*table.texts, *table.numbers])
        value = rng.choice(shown.execute(f"SELECT {column} FROM {table.name}").fetchall())[0]
    known = candidates(schema, [value], [kind])
    using = [query for query in known if value in values_in(query.question)]
    free = [query for query in known if not values_in(query.question)]
    chosen = using if using and (not free or rng.random() < 0.7) else free
    return rng.choice(chosen) if chosen else None


def _is_sound(query: Query, schema: Schema, opened: Sequence[sqlite3.Connection]) -> bool:
    gold = [_rows(connection, query.sql) for connection in opened]
    first = gold[0]
    if not first or all(cell in (None, 0) for row in first for cell in row):
        return False
    if all(_same(query, first, other) for other in gold[1:]):
        return False
    misses = near_misses(query, schema, values_in(query.question))
    return not any(all(_agree(query, gold, opened, miss)) for miss in misses)


def _agree(
    query: Query, gold: Sequence[list[Row] | None], opened: Sequence[sqlite3.Connection], miss: str
) -> Iterator[bool]:
    """For each database, does the near miss give what the right query gives?"""
    return (_same(query, right, _rows(database, miss)) for right, database in zip(gold, opened, strict=True))


def _same(query: Query, gold: list[Row] | None, given: list[Row] | None) -> bool:
    assert gold is not None, f"the right query fails: {query.sql}"
    return given is not None and same_result(gold, given, ordered=query.ordered)


def _rows(connection: sqlite3.Connection, sql: str) -> list[Row] | None:
    try:
        return connection.execute(sql).fetchall()
    except sqlite3.Error:
        return None
