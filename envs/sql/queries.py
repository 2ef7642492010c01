"""Queries with the questions that they answer: the kinds of queries, and all queries over given tables and values."""

import re
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import NamedTuple

from agentrl.envs.sql.schema import Schema, Table

FUNCTIONS = MappingProxyType({"highest": "max", "lowest": "min", "average": "avg", "total": "sum"})
SIGNS = MappingProxyType({"above": ">", "below": "<"})


class Kind(NamedTuple):
    """One kind of query: SQL and question with the same blanks, and whether its rows have an order."""

    sql: str
    question: str
    ordered: bool = False


# The blanks of a kind (the names with _ or s are the words of the question):
#     t, t_, ts        a table, one of its rows, several of its rows
#     p, p_, ps, a_p   the table to which t belongs, one row, several rows, one row with its article
#     c, g, n          any column, a column of words, a column of numbers
#     f, f_            a function          s, s_   a comparison          w, w_   a condition
#     k                a number            d       the direction of an order
KINDS = MappingProxyType(
    {
        "count": Kind("SELECT count(*) FROM {t}{w}", "How many {ts} are there{w_}?"),
        "aggregate": Kind("SELECT {f}({n}) FROM {t}{w}", "What is the {f_} {n} of the {ts}{w_}?"),
        "list": Kind("SELECT {c} FROM {t}{w}", "Give the {c} of the {ts}{w_}."),
        "group_count": Kind(
            "SELECT {g}, count(*) FROM {t} GROUP BY {g}", "For each {g} of the {ts}, how many {ts} are there?"
        ),
        "group_aggregate": Kind(
            "SELECT {g}, {f}({n}) FROM {t} GROUP BY {g}", "For each {g} of the {ts}, what is the {f_} {n}?"
        ),
        "having": Kind(
            "SELECT {g} FROM {t} GROUP BY {g} HAVING count(*) > {k}", "Which {g} do more than {k} {ts} have?"
        ),
        "extreme": Kind(
            "SELECT {c} FROM {t} WHERE {n} = (SELECT {f}({n}) FROM {t})", "Give the {c} of the {t_} with the {f_} {n}."
        ),
        "mean": Kind(
            "SELECT {c} FROM {t} WHERE {n} {s} (SELECT avg({n}) FROM {t})",
            "Give the {c} of the {ts} with {n} {s_} the average {n}.",
        ),
        "ordered": Kind(
            "SELECT {c} FROM {t} ORDER BY {n}{d}", "Give the {c} of all {ts} in the order of {n}, {f_} first.", True
        ),
        "distinct": Kind("SELECT DISTINCT {g} FROM {t}{w}", "Which different {g} do the {ts}{w_} have?"),
        "join_list": Kind(
            "SELECT {t}.{c} FROM {t} JOIN {p} ON {t}.{link} = {p}.id{w}",
            "Give the {c} of the {ts} that have {a_p}{w_}.",
        ),
        "join_count": Kind(
            "SELECT count(*) FROM {t} JOIN {p} ON {t}.{link} = {p}.id{w}", "How many {ts} have {a_p}{w_}?"
        ),
        "join_aggregate": Kind(
            "SELECT {f}({t}.{n}) FROM {t} JOIN {p} ON {t}.{link} = {p}.id{w}",
            "What is the {f_} {n} of the {ts} that have {a_p}{w_}?",
        ),
        "join_group": Kind(
            "SELECT {p}.{c}, count(*) FROM {t} JOIN {p} ON {t}.{link} = {p}.id GROUP BY {p}.id",
            "For each {p_} that has any {t_}, give its {c} and how many {ts} it has.",
        ),
        "join_extreme": Kind(
            "SELECT {p}.{c} FROM {t} JOIN {p} ON {t}.{link} = {p}.id WHERE {t}.{n} = (SELECT {f}({n}) FROM {t})",
            "Give the {c} of the {p_} of the {t_} with the {f_} {n}.",
        ),
        "without": Kind(
            "SELECT {c} FROM {p} WHERE id NOT IN (SELECT {link} FROM {t})", "Give the {c} of the {ps} without any {t_}."
        ),
    }
)
LEVELS = MappingProxyType(
    {
        "easy": ("count", "aggregate", "list"),
        "medium": ("group_count", "group_aggregate", "having", "extreme", "mean", "ordered", "distinct"),
        "hard": ("join_list", "join_count", "join_aggregate", "join_group", "join_extreme", "without"),
    }
)
JOINS = LEVELS["hard"]


class Query(NamedTuple):
    """A query, the question that it answers, and its kind."""

    sql: str
    question: str
    kind: str

    @property
    def ordered(self) -> bool:
        """Do the rows of the result have an order?"""
        return KINDS[self.kind].ordered


class Condition(NamedTuple):
    """A condition on one column, which can be written as SQL and in words."""

    column: str
    sign: str
    value: str | int

    @property
    def sql(self) -> str:
        """`city = 'Rome'`."""
        return f"{self.column} {self.sign} {self.value if isinstance(self.value, int) else repr(self.value)}"

    @property
    def words(self) -> str:
        """`with city Rome`, `with age above 40`."""
        sign = next((f" {word}" for word, sign in SIGNS.items() if sign == self.sign), "")
        return f" with {self.column}{sign} {self.value}"


def kinds_of(level: str) -> tuple[str, ...]:
    """The kinds of queries of a level; `all` has every kind."""
    return tuple(KINDS) if level == "all" else LEVELS[level]


def conditions(table: Table, values: Sequence[str | int]) -> Iterator[Condition]:
    """Conditions on a table with these values. A word may be in any column of words, a number in any of numbers."""
    for value in values:
        if isinstance(value, int):
            yield from (Condition(column, sign, value) for column in table.numbers for sign in SIGNS.values())
        else:
            yield from (Condition(column, "=", value) for column in table.texts)


def candidates(schema: Schema, values: Sequence[str | int], kinds: Sequence[str]) -> list[Query]:
    """Every query of these kinds over these tables.

    Args:
        schema: the tables that may be used.
        values: words and numbers that may occur in the queries.
        kinds: the kinds of queries to list.
    """
    known = {table.name: table for table in schema}
    return [
        query
        for table in schema
        for kind in kinds
        for query in (
            _joined(kind, table, known[table.parent], values)
            if kind in JOINS and table.parent in known
            else _single(kind, table, values)
            if kind not in JOINS
            else ()
        )
    ]


def _single(kind: str, table: Table, values: Sequence[str | int]) -> Iterator[Query]:
    """Queries of one table. The kinds list, mean and ordered show only the label and columns of numbers, because no
    value occurs twice in these columns."""
    plain = {"t": table.name, "t_": table.one, "ts": table.many}
    where = [("", "", ""), *((f" WHERE {c.sql}", c.words, c.column) for c in conditions(table, values))]
    for w, w_, column in where:
        told = {**plain, "w": w, "w_": w_}
        if kind == "count":
            yield _write(kind, told)
        elif kind == "aggregate":
            yield from (_write(kind, {**told, **f, "n": n}) for n in table.numbers for f in _functions())
        elif kind == "list" and w:
            yield from (_write(kind, {**told, "c": c}) for c in (table.label, *table.numbers) if c != column)
        elif kind == "distinct":
            yield from (_write(kind, {**told, "g": g}) for g in table.texts if g != column)
    if kind in ("group_count", "group_aggregate", "having"):
        yield from _grouped(kind, table, plain, values)
    for n in table.numbers if kind in ("extreme", "mean", "ordered") else ():
        yield from _by_number(kind, table, {**plain, "n": n})


def _grouped(kind: str, table: Table, plain: dict[str, str], values: Sequence[str | int]) -> Iterator[Query]:
    for g in table.texts:
        told = {**plain, "g": g}
        if kind == "group_count":
            yield _write(kind, told)
        elif kind == "group_aggregate":
            yield from (_write(kind, {**told, **f, "n": n}) for n in table.numbers for f in _functions())
        else:
            yield from (_write(kind, {**told, "k": str(k)}) for k in values if isinstance(k, int))


def _by_number(kind: str, table: Table, told: dict[str, str]) -> Iterator[Query]:
    others = [c for c in (table.label, *table.numbers) if c != told["n"]]
    if kind == "extreme":
        for c in (*others, *table.texts):
            yield from (_write(kind, {**told, **f, "c": c}) for f in _functions()[:2])
    elif kind == "mean":
        yield from (_write(kind, {**told, "c": c, "s": s, "s_": word}) for c in others for word, s in SIGNS.items())
    else:
        for f_, d in (("highest", " DESC"), ("lowest", "")):
            yield _write(kind, {**told, "c": table.label, "f_": f_, "d": d})


def _joined(kind: str, table: Table, parent: Table, values: Sequence[str | int]) -> Iterator[Query]:
    """Queries that join a table with its parent, the table to which it belongs."""
    plain = {"t": table.name, "t_": table.one, "ts": table.many, "link": table.link}
    plain |= {"p": parent.name, "p_": parent.one, "a_p": parent.with_article, "ps": parent.many}
    where = [(f" WHERE {parent.name}.{c.sql}", c.words) for c in conditions(parent, values)]
    for w, w_ in where:
        told = {**plain, "w": w, "w_": w_}
        if kind == "join_list":
            yield from (_write(kind, {**told, "c": c}) for c in (table.label, *table.numbers))
        elif kind == "join_count":
            yield _write(kind, told)
        elif kind == "join_aggregate":
            yield from (_write(kind, {**told, **f, "n": n}) for n in table.numbers for f in _functions())
    if kind in ("join_group", "without"):
        yield _write(kind, {**plain, "c": parent.label})
    elif kind == "join_extreme":
        for n in table.numbers:
            for c in (parent.label, *parent.numbers):
                yield from (_write(kind, {**plain, **f, "n": n, "c": c}) for f in _functions()[:2])


def _functions() -> list[dict[str, str]]:
    return [{"f": sql, "f_": word} for word, sql in FUNCTIONS.items()]


def _write(kind: str, blanks: dict[str, str]) -> Query:
    return Query(KINDS[kind].sql.format(**blanks), KINDS[kind].question.format(**blanks), kind)


def near_misses(query: Query, schema: Schema, values: Sequence[str | int]) -> list[str]:
    """Wrong SQL that is close to a query: all candidates for other questions, and usual mistakes in the query."""
    other = [one.sql for one in candidates(schema, values, tuple(KINDS)) if one.sql != query.sql]
    sql = query.sql
    edits = [re.sub(r" ([<>]) (?!\()", r" \1= ", sql)]  # not before `(`: few rows equal an average
    edits += [sql.replace(" > ", " < "), sql.replace(" < ", " > ")]
    edits.append(re.sub(r" WHERE .*$", "", sql))
    edits.append(re.sub(r" ORDER BY .*$", "", sql))
    edits.append(re.sub(r" HAVING .*$", "", sql))
    edits.append(sql.replace("DISTINCT ", ""))
    edits.append(sql.replace(" NOT IN ", " IN "))
    edits += [re.sub(r"count\(\*\)", f"count(DISTINCT {column})", sql) for t in schema for column in t.texts]
    edits += [sql.replace(f" {k}", f" {k + change}") for k in values if isinstance(k, int) for change in (-1, 1)]
    for table in schema:
        for words in table.texts.values():
            edits += [sql.replace(f"'{a}'", f"'{b}'") for a in values for b in words if a != b]
    return list(dict.fromkeys(one for one in [*other, *edits] if one != sql))
