"""Checks the columns: mixed types, numbers that are not finite, and missing values, questions or answers."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from agentrl.preflight.rows.finding import RowFinding, listed
from agentrl.preflight.rows.split import ANSWERS, NAMES, QUESTIONS, Split

COMMON = 0.9  # if at least this share of rows has a value in a column, the rows without a value are a finding


def check_fields(split: Split, *, with_env: bool) -> Iterator[RowFinding]:
    """Findings on the columns of one split.

    With an environment (`with_env`), missing values are not reported here: its hook `read_row` says what a row lacks.
    """
    names = dict.fromkeys(name for row in split.rows for name in row)
    for name in names:
        values = [row.get(name) for row in split.rows]
        yield from _types(split, name, values)
        yield from _not_a_number(split, name, values)
        if not with_env:
            yield from _absent(split, name, values)
    if not with_env:
        yield from _no_answer(split, names)


def _kind(value: Any) -> str:
    if value is None:
        return "no value"
    if isinstance(value, bool):
        return "a flag"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    return (
        "an object" if isinstance(value, Mapping) else "a list" if hasattr(value, "__len__") else type(value).__name__
    )


def _types(split: Split, name: str, values: list[Any]) -> Iterator[RowFinding]:
    kinds = [_kind(value) for value in values]
    counts = Counter(kind for kind in kinds if kind != "no value")
    if len(counts) < 2 or name in NAMES:
        return
    usual, times = counts.most_common(1)[0]
    for kind in counts:
        if kind != usual:
            rows = tuple(split.place(i) for i, one in enumerate(kinds) if one == kind)
            yield RowFinding(
                kind="type",
                rows=rows,
                text=f"column {name!r} has {kind} in {listed(rows)}, and {usual} in {times} of {len(values)} rows: "
                "write one type",
            )


def _not_a_number(split: Split, name: str, values: list[Any]) -> Iterator[RowFinding]:
    wrong = [i for i, value in enumerate(values) if isinstance(value, float) and not math.isfinite(value)]
    if wrong:
        rows = tuple(map(split.place, wrong))
        text = f"column {name!r} is not a finite number in {listed(rows)}: give a value, or remove the row"
        yield RowFinding(kind="number", rows=rows, text=text)


def _absent(split: Split, name: str, values: list[Any]) -> Iterator[RowFinding]:
    """A finding on rows without a value in a column, if at least the share COMMON of all rows has a value in it."""
    absent = [i for i, value in enumerate(values) if empty(value) and not isinstance(value, float)]
    if name in (*QUESTIONS, *ANSWERS, *NAMES) or not 0 < len(absent) <= (1 - COMMON) * len(values):
        return
    rows = tuple(map(split.place, absent))
    text = (
        f"column {name!r} has no value in {listed(rows)}, and has a value in every other row: add it, or remove the row"
    )
    yield RowFinding(kind="missing", rows=rows, text=text)


def _no_answer(split: Split, names: Mapping[str, None]) -> Iterator[RowFinding]:
    """Findings on rows without a question or without an answer.

    A row has no question if all columns with usual names for a question are empty in this row; the same for an answer.
    """
    for kind, known in (("question", QUESTIONS), ("answer", ANSWERS)):
        columns = [name for name in known if name in names]
        wrong = [i for i, row in enumerate(split.rows) if all(empty(row.get(name)) for name in columns)]
        if columns and wrong:
            rows = tuple(map(split.place, wrong))
            text = f"there is no {kind} in {listed(rows)} (empty: column {' and '.join(map(repr, columns))}): "
            yield RowFinding(kind="empty", rows=rows, text=f"{text}fill it in, or remove the row")


def empty(value: Any) -> bool:
    """Does the value count as missing?

    True for None, a blank text, NaN, an empty object, an empty list, and a list in which every value counts as missing.
    """
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, float):
        return math.isnan(value)
    if isinstance(value, Mapping):
        return not value
    if isinstance(value, list | tuple):
        return all(map(empty, value))
    return value is None
