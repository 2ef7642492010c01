"""One question over one database: its tools, its state, its score."""

import functools
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from agentrl.envs.sql.compare import same_result, same_set
from agentrl.envs.sql.guarded import Limits, Result, Source, run_query
from agentrl.envs.sql.queries import candidates, kinds_of
from agentrl.envs.sql.questions import Problem, values_in, write_problem
from agentrl.tool import ToolError, ToolFault, action as tool_action
from agentrl.tool_env import ToolConfig

LIST, SCHEMA, QUERY, ANSWER = "list_tables", "schema", "query", "answer"
LONGEST_CELL = 200  # largest number of characters of a cell that are shown
BRIEF_ROWS = 4  # largest number of rows of a result that the compact prompt shows
MORE_FOR_GOLD = 10  # a right query may take this many times the instructions and seconds of an agent's query
CATALOGUE = (
    "SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
)
FENCED = re.compile(r"```(?:sql|sqlite)?\s*\n?(.*?)```", re.S | re.I)


class Config(ToolConfig, frozen=True):
    """The options.

    level: kinds of generated questions: easy (counts, aggregates, lists), medium (GROUP BY, HAVING, ORDER BY, DISTINCT,
        nested queries), hard (two tables; needs `tables` = 2 or 3) or all.
    tables: number of tables of a generated database.
    count: number of generated questions in each part.
    seed: seed of the first generated question of each part.
    split: the part of the questions: train, valid, test, or all three. No table of a generated database is in two
        parts, and no database of files is in two parts.
    test_share: share of the databases in the test part, between 0 and 1, if `data` names a single file; else it has no
        effect.
    prompt: chat (tool calls), instruct (one line per turn, for language models), or compact (few words, for small
        models; only for generated questions). Generated questions list their actions under instruct and compact. The
        listed queries are of the kinds of the level. They read only tables whose schema the agent has read, and their
        constants are words and numbers of the question. The listed answers are the queries that the agent has run.
    rows: not allowed here; name a file of questions by `data`.
    data: a JSON file of questions in the form of BIRD or Spider, or a folder with their train and dev files, instead of
        generated questions.
    databases: the folder with the databases of `data`; empty: a folder with one of the usual names, beside the file.
    evidence: show the evidence of a question of BIRD with the question.
    compare: rows (results are compared as multisets of rows; their order counts only if the right query orders them,
        and the order of columns never counts) or bird (as sets of rows with ordered columns, as BIRD does).
    max_rows: largest number of rows of a result that the agent sees. Under the compact prompt it sees at most 4.
    max_instructions: largest number of instructions of SQLite's virtual machine per query; a query that needs more ends
        with an error.
    timeout_s: largest number of seconds of one query; a query that takes longer ends with an error.
    memory_mb: memory that SQLite may take for queries, in MiB; a query that needs more ends with an error.
    """

    level: Literal["easy", "medium", "hard", "all"] = "medium"
    tables: int = Field(2, ge=1, le=3)
    count: int = Field(1000, ge=1, le=100_000)
    seed: int = Field(0, ge=0)
    split: Literal["all", "train", "valid", "test"] = "all"  # type: ignore[assignment]
    prompt: Literal["chat", "instruct", "compact"] = "chat"  # type: ignore[assignment]
    no_call: Literal["answer", "nudge"] = "nudge"
    data: str = ""
    databases: str = ""
    evidence: bool = True
    compare: Literal["rows", "bird"] = "rows"
    max_rows: int = Field(20, ge=1, le=1000)
    max_instructions: int = Field(5_000_000, ge=1000)
    timeout_s: float = Field(10.0, gt=0, le=600)
    memory_mb: int = Field(128, ge=8, le=8192)

    @property
    def limits(self) -> Limits:
        """What one query may take."""
        return Limits(steps=self.max_instructions, seconds=self.timeout_s, memory=self.memory_mb << 20)


def problem_of(made: Mapping[str, Any]) -> Problem:
    """The generated problem that a row names."""
    return write_problem(made["level"], made["tables"], made["part"], made["number"])


class Database:
    """One question. The databases are never written to, so what was asked decides the state."""

    weights = {"ran": 0.0, "shown": 0.0}  # noqa: RUF012  metrics

    def __init__(self, config: Config) -> None:
        self._config = config
        self._question, self._gold, self._ordered = "", "", False
        self._made: Mapping[str, Any] = {}
        self._sources: tuple[Source, ...] = ()
        self._listed = False
        self._read: list[str] = []  # tables whose schema was read
        self._run: list[str] = []  # queries, in their order
        self._submitted: str | None = None
        self.done = False

    def reset(
        self,
        made: Mapping[str, Any] | None = None,
        question: str = "",
        gold: str = "",
        ordered: bool = False,
        files: Sequence[str] = (),
    ) -> str:
        """Ask the question.

        Args:
            made: level, tables, part and number of a generated question; the other arguments are for one of a file.
            question: the question.
            gold: its right query.
            ordered: the right query orders its rows.
            files: its databases; the agent sees the first.
        """
        self._made = made or {}
        if made:
            query, _, self._sources = problem_of(made)
            self._question, self._gold, self._ordered = query.question, query.sql, query.ordered
        else:
            self._question, self._gold, self._ordered = question, gold, ordered
            self._sources = tuple(Source(one, file=one) for one in files)
        return self._question

    def list_tables(self) -> str:
        """The names of the tables."""
        self._listed = True
        return (" " if self._brief else ", ").join(self._spoken(name) for name in self._created())

    def schema(self, table: str) -> str:
        """The statement that created a table: its columns and their types.

        Args:
            table: its name
        """
        created = self._created()
        name = next((one for one in created if one.lower() == table.strip().strip('"`[]').lower()), None)
        if name is None:
            raise ToolError(f"there is no table {table!r:.100}: the tables are {', '.join(created)}")
        self._read = list(dict.fromkeys([*self._read, name]))
        if self._brief:
            columns = next(one.columns for one in problem_of(self._made).schema if one.name == name)
            return f"{self._spoken(name)} has {' '.join(map(self._spoken, columns))}"
        return created[name]

    def query(self, sql: str) -> str:
        """Run a query (SQLite) on the database, which can only be read.

        Args:
            sql: one SELECT statement
        """
        sql = plain_sql(sql)
        self._run = list(dict.fromkeys([*self._run, sql]))
        found = run_query(self._sources[0], sql, self._config.limits)
        if found.error:
            raise ToolError(found.error)
        return brief_rows(found) if self._brief else table_of(found, self._config.max_rows)

    def answer(self, sql: str) -> str:
        """Give the query whose result answers the question. This ends the task.

        Args:
            sql: one SELECT statement
        """
        self._submitted, self.done = plain_sql(sql), True
        return "answered"

    def reward(self, answer: str) -> dict[str, float]:
        """Signals that are 0 or 1. correct: the answer's result is right in every database. ran: the answer is a query
        that runs. shown: its result is right in the database that the agent saw."""
        given = self._submitted if self._submitted is not None else plain_sql(answer)
        if not given:
            return {"correct": 0.0, "ran": 0.0, "shown": 0.0}
        first = run_query(self._sources[0], given, self._config.limits)
        shown = not first.error and self._same(self._sources[0], first)
        correct = shown and all(
            not (other := run_query(source, given, self._config.limits)).error and self._same(source, other)
            for source in self._sources[1:]
        )
        return {"correct": float(correct), "ran": float(not first.error), "shown": float(shown)}

    def state_key(self) -> str:
        """The question, whether the tables were listed, and which schemas and queries were seen, in any order."""
        digest = hashlib.sha256("\0".join(sorted(self._run)).encode("utf-8", "replace")).hexdigest()[:12]
        parts = [
            self._question,
            f"database {self._sources[0].name}",
            f"tables {'listed' if self._listed else 'unknown'}",
            f"schemas {' '.join(sorted(self._read))}",
            f"queries {len(self._run)} {digest if self._run else ''}",
        ]
        return "\n".join([*parts, *(["answered"] if self.done else [])])

    @property
    def _brief(self) -> bool:
        return self._config.prompt == "compact"

    def _spoken(self, name: str) -> str:
        """The name; under the compact prompt as separate words, each of which is a token that occurs elsewhere too."""
        return name.replace("_", " ") if self._brief else name

    def _created(self) -> dict[str, str]:
        return created(self._sources[0], self._config.limits)

    def _same(self, source: Source, given: Result) -> bool:
        right = gold_result(source, self._gold, self._config.limits)
        if self._config.compare == "bird":
            return same_set(right.rows, given.rows)
        return same_result(right.rows, given.rows, ordered=self._ordered)

    def _choices(self) -> Iterator[str]:
        """Listed actions of generated questions: see `Config`."""
        if not self._made:
            return
        if not self._listed:
            yield tool_action.call(LIST)
            return
        problem = problem_of(self._made)
        yield from (tool_action.call(SCHEMA, table=t.name) for t in problem.schema if t.name not in self._read)
        known = tuple(table for table in problem.schema if table.name in self._read)
        for query in candidates(known, values_in(self._question), kinds_of(self._made["level"])):
            if query.sql not in self._run:
                yield tool_action.call(QUERY, sql=query.sql)
        yield from (tool_action.call(ANSWER, sql=sql) for sql in self._run)


def plain_sql(text: str) -> str:
    """SQL without a fence around it, white space and a last semicolon."""
    fenced = FENCED.search(text) if text.lstrip().startswith("```") else None
    return (fenced.group(1) if fenced else text).strip().rstrip(";").rstrip()


@functools.lru_cache(maxsize=256)
def created(source: Source, limits: Limits) -> dict[str, str]:
    """Name -> statement of every table and view of a database; ToolFault if it has none."""
    found = run_query(source, CATALOGUE, limits)
    if found.error or not found.rows:
        raise ToolFault(f"database {source.file or source.name} has no tables to read: {found.error or 'it is empty'}")
    return {str(name): str(sql) for name, sql in found.rows}


@functools.lru_cache(maxsize=4096)
def gold_result(source: Source, sql: str, limits: Limits) -> Result:
    """The result of the right query; ToolFault if it fails, because that is no mistake of the agent."""
    more = limits._replace(steps=limits.steps * MORE_FOR_GOLD, seconds=limits.seconds * MORE_FOR_GOLD)
    found = run_query(source, sql, more)
    if found.error:
        raise ToolFault(f"the right query fails on {source.file or source.name}: {found.error}: {sql[:300]}")
    return found


def table_of(found: Result, shown: int) -> str:
    """A result for a language model: its columns, its rows, and how many there are."""
    lines = [" | ".join(found.columns), *(" | ".join(map(_cell, row)) for row in found.rows[:shown])]
    more = f", the first {shown} are shown" if len(found.rows) > shown else ""
    return "\n".join([*lines, f"({len(found.rows)} row{'s' * (len(found.rows) != 1)}{more})"])


def brief_rows(found: Result) -> str:
    """A result in few words: its first rows, and how many there are."""
    rows = ", ".join(" ".join(map(_cell, row)) for row in found.rows[:BRIEF_ROWS])
    return f"{rows} of {len(found.rows)}" if len(found.rows) > BRIEF_ROWS else rows or "nothing"


def _cell(cell: object) -> str:
    if cell is None:
        return "NULL"
    if isinstance(cell, float):
        return f"{cell:.6g}" if cell != int(cell) or abs(cell) > 1e15 else str(int(cell))
    text = f"x'{cell.hex()}'" if isinstance(cell, bytes) else " ".join(str(cell).split())
    return text if len(text) <= LONGEST_CELL else text[:LONGEST_CELL] + "..."
