"""The tasks of a tool environment: one per row, split into training and test tasks by their keys."""

import hashlib
import types
import typing
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple

from pydantic import ConfigDict, TypeAdapter, ValidationError

from agentrl.rows import Row, is_number, plain
from agentrl.types import Task

SINGLE = (int, float, str, bool, type(None), Any, list, dict)
HOLDERS = (list, dict, Sequence, Mapping, typing.Union, types.UnionType)


def complaint(name: str, value: Any, hint: Any) -> str:
    """What is wrong with the value of a column, such as `size['a'][0] = '3', and reset takes dict[str, list[int]]`.

    Empty if the value has the type `hint`, or if `hint` is no type of JSON values, for example a class of the user.
    """
    if not _is_checked(hint):
        return ""
    try:
        _adapter(hint).validate_python(value)
    except ValidationError as error:
        place, inner = _place(value, error.errors()[0]["loc"])
        takes = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
        return f"{name}{place} = {inner!r:.60}, and reset takes {takes.replace('typing.', '')}"
    return ""


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint, config=ConfigDict(strict=True))


def _is_checked(hint: Any) -> bool:
    """Is the hint a type of JSON values?"""
    origin = typing.get_origin(hint)
    if origin in HOLDERS:
        return all(map(_is_checked, typing.get_args(hint)))
    return origin is Literal or any(hint is one for one in SINGLE)


def _place(value: Any, parts: Sequence[Any]) -> tuple[str, Any]:
    """(the path to an inner value of `value`, such as `['a'][0]`, that inner value)."""
    place = ""
    for part in parts:  # pydantic adds further parts, such as the types of a union
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            break
        place += f"[{part!r}]"
    return place, value


COLUMNS = ("key", "id")  # columns that may name a row; the first one with a value names it
Split = Literal["all", "train", "test"]
FEW = 20  # see `Division.uneven`


class Division(NamedTuple):
    """How a column divides rows into train and test.

    Attributes:
        column: name of the column.
        values: number of distinct values of the column; rows with the same value stay together.
        rows: number of rows.
        test: number of rows that are test rows.
        wanted: share of test rows that the configuration asks for (`test_share`).
    """

    column: str
    values: int
    rows: int
    test: int
    wanted: float

    @property
    def uneven(self) -> bool:
        """Is the division coarse, or is the share of test rows far from the wanted share?

        The division is coarse if the column has fewer than FEW values, and there are at least twice as many rows as
        values. The share is far from the wanted one if the difference exceeds half of the smaller wanted part.
        """
        few = self.values < FEW and 2 * self.values <= self.rows
        return few or abs(self.test / self.rows - self.wanted) > min(self.wanted, 1 - self.wanted) / 2

    def __str__(self) -> str:
        """The division as a sentence, with advice if the division is uneven."""
        told = (
            f"the column {self.column!r} decides which rows are for training and which for tests, and rows with the "
            f"same value stay together: {self.values} values in {self.rows} rows; {self.test} rows "
            f"({self.test / self.rows:.0%}) are test rows, and test_share is {self.wanted:.0%}"
        )
        if not self.uneven:
            return told
        return (
            f"{told}; if the column does not name rows, rename it, such as to topic; or give the test rows as a "
            "source of their own (eval.env.rows, docs/data.md)"
        )


class RowTasks(Sequence[Task]):
    """One task per row; a task is made when it is read.

    The key of a task holds the name of its row: the column `key` or `id`, else the row's number. If several rows have
    the same name, the keys also hold the row numbers, and all these rows belong to one split.

    Args:
        rows: one row per task.
        env: name of the environment; every key begins with this name.
        split: the part of the tasks.
        test_share: share of the test part, 0 to 1.
        column: the column that names the rows, for `division`; empty if no column does.

    Raises:
        ValueError: a row is no mapping, its `seed` is no whole number, or no row is in the split.
    """

    def __init__(self, rows: Sequence[Row], env: str, split: Split, test_share: float, column: str = "") -> None:
        self._rows, self._env = rows, env
        self._column, self._test_share = column, test_share
        self.split = split
        self._numbers: Sequence[int] = range(len(rows))  # numbers of the rows in the split
        has_names = any(self._row(0).get(column) is not None for column in COLUMNS)
        times = Counter(map(self._name, self._numbers)) if has_names else {}
        self._shared = {name for name, count in times.items() if count > 1}
        if split != "all":
            test = split == "test"
            self._numbers = [i for i in self._numbers if self._is_test(i) == test]
            if not self._numbers and len(rows):
                told = f"split = {split!r} has none of the {len(rows)} rows"
                raise ValueError(f"{told}: {self.division or 'add rows, or set another test_share'}")

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        number = self._numbers[i]
        row = plain(self._row(number))
        return Task(key=self._key(number), env=self._env, seed=self._seed(row, number), params=row)

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the rows in the split."""
        return self._numbers

    @cached_property
    def division(self) -> Division | None:
        """How the naming column divides all rows into train and test; None if no column names the rows."""
        if not self._column:
            return None
        every = range(len(self._rows))
        values = len({self._name(i) for i in every})
        return Division(self._column, values, len(every), sum(map(self._is_test, every)), self._test_share)

    def _is_test(self, number: int) -> bool:
        return share_of_key(f"{self._env}/{self._name(number)}") < self._test_share

    def _seed(self, row: Row, number: int) -> int:
        """The row's `seed`, else its number."""
        seed = row.get("seed")
        if seed is not None and (not is_number(seed) or seed % 1 != 0):  # refuses NaN and infinity, too
            raise ValueError(f"row {number} has the seed {seed!r}: it must be a whole number")
        return number if seed is None else int(seed)

    def _row(self, number: int) -> Row:
        row = self._rows[number]
        if not hasattr(row, "items"):
            raise ValueError(f"row {number} is {type(row).__name__}, not a mapping from column to value")
        return row

    def _name(self, number: int) -> str:
        row = self._row(number)
        column = naming_column(row)
        return str(row[column] if column else number)

    def _key(self, number: int) -> str:
        name = self._name(number)
        return f"{self._env}/{name}#{number}" if name in self._shared else f"{self._env}/{name}"


def naming_column(row: Row, columns: Sequence[str] = COLUMNS) -> str:
    """The column that names a row; empty if it has none."""
    return next((column for column in columns if row.get(column) is not None), "")


class PartRows(Sequence[Row]):
    """Rows of generated tasks, ordered by part and then by number; a row is made when it is read.

    Args:
        make: (name of the part, number) -> the row.
        parts: names of the parts, such as train and test.
        first: number of the first row of each part.
        count: number of rows of each part.
    """

    def __init__(self, make: Callable[[Any, int], Row], parts: Sequence[str], first: int, count: int) -> None:
        self._make, self._parts, self._first, self._count = make, parts, first, count

    def __len__(self) -> int:
        return len(self._parts) * self._count

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        part, number = divmod(range(len(self))[i], self._count)
        return self._make(self._parts[part], self._first + number)


def share_of_key(key: str) -> float:
    """A number from 0 to 1 that depends on the key alone, uniformly distributed over keys."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64
