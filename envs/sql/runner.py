"""The process that runs queries: reads one JSON request per line, writes one JSON reply per line.

It is started as a script and imports only the standard library. A query can only read: databases are opened read-only,
an authorizer refuses every other action, and steps, memory, sizes and rows are limited. The sender of a query limits
its time: it kills this process.
"""

import json
import resource
import sqlite3
import sys
from collections import OrderedDict
from typing import Any
from urllib.parse import quote

OPEN_DATABASES = 64  # largest number of databases that are open at once
STEPS_PER_CALL = 1000  # instructions of SQLite's machine between two checks of the limit
SPARE = 1 << 29  # bytes that Python and the files' pages may take beside SQLite's heap
MOST_BYTES = 16 << 20  # largest size of all rows of a result
LIMITS = {
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 20_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 500,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 50,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 500,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 10,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
# Functions that use files or extensions, and random ones, whose results could not be compared.
REFUSED = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "random", "randomblob"}


class Refused(Exception):
    """A query that one of our limits ended; the text of the exception is the reply."""


def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Answer SQLite's question whether a statement may do something: it may read and call most functions."""
    if action in READS or (action == sqlite3.SQLITE_FUNCTION and str(second).lower() not in REFUSED):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def open_database(request: dict[str, Any]) -> sqlite3.Connection:
    """The database of a request, opened so that it can only be read."""
    if request.get("file"):
        connection = sqlite3.connect(f"file:{quote(request['file'])}?mode=ro&immutable=1", uri=True)
    else:
        connection = sqlite3.connect(":memory:")
        connection.executescript(request["script"])
    connection.isolation_level = None
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA cache_size = -8000")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute(f"PRAGMA hard_heap_limit = {int(request['memory'])}")  # of the whole process
    for limit, value in LIMITS.items():
        connection.setlimit(limit, value)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, int(request["bytes"]))
    connection.set_authorizer(authorize)
    return connection


def run(connection: sqlite3.Connection, request: dict[str, Any]) -> dict[str, Any]:
    """Columns and rows of a query. Raises Refused if the query goes beyond a limit."""
    steps, spent = int(request["steps"]), 0

    def over_budget() -> bool:
        nonlocal spent
        spent += STEPS_PER_CALL
        return spent > steps

    connection.set_progress_handler(over_budget, STEPS_PER_CALL)
    try:
        cursor = connection.execute(request["sql"])
        if cursor.description is None:
            raise Refused("this is no query: write one SELECT")
        return {"columns": [column[0] for column in cursor.description], "rows": fetched(cursor, int(request["rows"]))}
    except sqlite3.OperationalError as error:
        if str(error) == "interrupted":
            raise Refused(f"the query was stopped after {steps:,} instructions: write a smaller one") from None
        raise
    finally:
        connection.set_progress_handler(None, 0)


def fetched(cursor: sqlite3.Cursor, most: int) -> list[list[Any]]:
    """The rows. Raises Refused if there are more than `most` rows, or if their sizes add up to more than MOST_BYTES."""
    rows: list[list[Any]] = []
    size = 0
    for row in cursor:
        size += sum(len(cell) if isinstance(cell, str | bytes) else 8 for cell in row)
        if len(rows) >= most:
            raise Refused(f"the result has more than {most:,} rows: add LIMIT or a condition")
        if size > MOST_BYTES:
            raise Refused(f"the result has more than {MOST_BYTES:,} bytes: ask for fewer columns or rows")
        rows.append([{"blob": cell.hex()} if isinstance(cell, bytes) else cell for cell in row])
    return rows


def reply(databases: OrderedDict[str, sqlite3.Connection], request: dict[str, Any]) -> dict[str, Any]:
    """The reply to a request; every failure of a query is a text."""
    name = request["database"]
    if name not in databases:
        if not (request.get("script") or request.get("file")):
            return {"unknown": True}
        try:
            databases[name] = open_database(request)
        except (sqlite3.Error, MemoryError) as error:
            return {"broken": str(error) or type(error).__name__}
    databases.move_to_end(name)
    while len(databases) > OPEN_DATABASES:
        databases.popitem(last=False)[1].close()
    try:
        return run(databases[name], request)
    except Refused as error:
        return {"error": str(error)}
    except MemoryError:
        databases.pop(name).close()
        return {"error": "the query needs more memory than it may use: write a smaller one"}
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        return {"error": str(error) or type(error).__name__}


def limit_process(memory: int) -> None:
    """Forbid this process to write files and core dumps, and limit its memory to `memory` + `SPARE` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory + SPARE, memory + SPARE))


def main() -> None:
    """Answer requests until the input ends."""
    limit_process(int(sys.argv[1]))
    databases: OrderedDict[str, sqlite3.Connection] = OrderedDict()
    for line in sys.stdin:
        written = json.dumps(reply(databases, json.loads(line)))
        sys.stdout.write(written + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
