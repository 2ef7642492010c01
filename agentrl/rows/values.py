"""Values of rows: arrays, dates and times as JSON values, and the cells of a CSV column as typed values."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import date, time
from typing import Any

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
