"""Reads rows from text: JSONL, JSON, CSV and TSV files, with the line on which each row begins."""

import csv
import io
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, time
from pathlib import Path
from typing import Any, NamedTuple

from agentrl.files import read_json, read_jsonl, read_text

MISSING = ("", "nan", "na", "n/a", "null", "none")  # a cell with such a text, in upper or lower case, has no value


def plain(value: Any) -> Any:
    """A value of a row, in types that JSON has.

    Arrays become lists, NumPy scalars become Python's scalars, dates and times become texts. Values of other types are
    returned unchanged.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.isoformat() if isinstance(value, date | time) else value  # `datetime` is a subclass of `date`


def is_number(value: Any) -> bool:
    """Is the value a number? True and False are not numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def typed(cells: Sequence[str]) -> list[Any]:
    """The cells of one CSV column as values.

    A column becomes numbers, booleans, or lists and objects if every cell with a value is written as JSON writes such a
    value. In such a column, a cell without a value (`MISSING`) becomes None. Any other column stays text, and only its
    empty cells become None. So a text column keeps "007" and "NaN" as they are.
    """
    values = [_json(cell) for cell in cells]
    filled = [one for cell, one in zip(cells, values, strict=True) if cell.strip().lower() not in MISSING]
    if filled and (all(map(is_number, filled)) or all(isinstance(one, bool) for one in filled)):
        return [None if cell.strip().lower() in MISSING else one for cell, one in zip(cells, values, strict=True)]
    if filled and all(isinstance(one, list | dict) for one in filled):
        return [None if not cell.strip() else one for cell, one in zip(cells, values, strict=True)]
    return [cell or None for cell in cells]


def _json(cell: str) -> Any:
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        return None
    return value if not isinstance(value, float) or math.isfinite(value) else None


DELIMITERS = {".csv": ",", ".tsv": "\t"}


class Lines(NamedTuple):
    """Rows, and the line of the file on which each row begins, from 1; `lines` is empty for a JSON list."""

    rows: list[dict[str, Any]]
    lines: tuple[int, ...] = ()


def read_jsonl_rows(path: Path) -> Lines:
    """One JSON object per line."""
    rows, lines = [], []
    for line, value in read_jsonl(path, "file of rows"):
        if not isinstance(value, dict):
            raise ValueError(f"line {line} of {path} is no JSON object: write one object per line")
        rows.append(value)
        lines.append(line)
    return Lines(rows, tuple(lines))


def read_json_rows(path: Path) -> Lines:
    """A JSON list of objects."""
    values = read_json(path, "file of rows")
    if not isinstance(values, list):
        raise ValueError(f"{path} must be a JSON list of objects, and it holds {type(values).__name__}")
    wrong = next((i for i, value in enumerate(values) if not isinstance(value, dict)), None)
    if wrong is not None:
        raise ValueError(f"row {wrong} of {path} is no JSON object: the file must be a list of objects")
    return Lines(values)


def read_csv_rows(path: Path) -> Lines:
    """The rows of a table whose first line names the columns.

    A quoted cell may hold line ends. `agentrl.rows.text_files.typed` gives the cells of a column their types.

    Raises:
        ValueError: the file is missing or is no UTF-8, a column has no name or the name of another column, a row has
            more or fewer cells than the first line, or the quotes of a cell are wrong. The messages on a row name the
            line on which the row begins.
    """
    text = read_text(path, "file of rows")
    names: list[str] = []
    rows: list[list[str]] = []
    lines: list[int] = []
    for line, cells in _records(text, path):
        if not names:
            names = _names(cells, path)
            continue
        if len(cells) != len(names):
            raise ValueError(
                f"line {line} of {path} has {len(cells)} cells, and the first line names {len(names)} columns: put "
                "cells that hold a separator or a line end between double quotes"
            )
        rows.append(cells)
        lines.append(line)
    columns = [typed([cells[i] for cells in rows]) for i in range(len(names))]
    return Lines([dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)], tuple(lines))


def _records(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line on which the record begins, from 1; cells) of each record that is not empty."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=DELIMITERS[path.suffix], strict=True)
    with _long_cells():
        while True:
            begins = reader.line_num + 1
            try:
                cells = next(reader, None)
            except csv.Error as error:
                raise ValueError(
                    f"the row that begins on line {begins} of {path} cannot be read ({error}): close its quotes, and "
                    "double a quote inside a quoted cell"
                ) from None
            if cells is None:
                return
            if cells:
                yield begins, cells


@contextmanager
def _long_cells() -> Iterator[None]:
    """Lift the csv module's limit on the length of a cell while a file is read. The limit is global to the process."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _names(cells: list[str], path: Path) -> list[str]:
    names = [cell.strip() for cell in cells]
    if not all(names):
        raise ValueError(f"column {names.index('') + 1} of {path} has no name: the first line names the columns")
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise ValueError(f"{path} has two columns named {twice!r}: rename one in the first line")
    return names
