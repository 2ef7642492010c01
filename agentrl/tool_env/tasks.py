"""The tasks of a tool environment: one per row, split into training and test tasks by their keys."""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

from agentrl.rows import Row, is_number, plain
from agentrl.types import Task

COLUMNS = ("key", "id")  # columns that may name a row; the first one with a value does
Split = Literal["all", "train", "test"]


class RowTasks(Sequence[Task]):
    """Tasks of rows, made when asked for.

    The name of a row, its `key` or `id`, else its number, makes the key of the task. If several rows have one name, the
    keys also hold the row numbers, and all these rows belong to one split.

    Raises:
        ValueError: a row is no mapping, or its `seed` is no whole number.
    """

    def __init__(self, rows: Sequence[Row], env: str, split: Split, test_share: float) -> None:
        self._rows, self._env = rows, env
        self._numbers: Sequence[int] = range(len(rows))  # of the rows in the split
        has_names = any(self._row(0).get(column) is not None for column in COLUMNS)
        times = Counter(map(self._name, self._numbers)) if has_names else {}
        self._shared = {name for name, count in times.items() if count > 1}
        if split != "all":
            test = split == "test"
            self._numbers = [i for i in self._numbers if (share_of_key(f"{env}/{self._name(i)}") < test_share) == test]

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

    def _seed(self, row: Row, number: int) -> int:
        """The row's `seed`, else its number."""
        seed = row.get("seed")
        if seed is not None and (not is_number(seed) or seed % 1 != 0):  # also of NaN and infinity
            raise ValueError(f"row {number} has the seed {seed!r}: it must be a whole number")
        return number if seed is None else int(seed)

    def _row(self, number: int) -> Row:
        row = self._rows[number]
        if not hasattr(row, "items"):
            raise ValueError(f"row {number} is {type(row).__name__}, not a mapping from column to value")
        return row

    def _name(self, number: int) -> str:
        row = self._row(number)
        return str(next((row[column] for column in COLUMNS if row.get(column) is not None), number))

    def _key(self, number: int) -> str:
        name = self._name(number)
        return f"{self._env}/{name}#{number}" if name in self._shared else f"{self._env}/{name}"


class PartRows(Sequence[Row]):
    """Rows of generated tasks, part by part and by number; a row is made when it is read.

    Args:
        make: (part, number) -> the row.
        parts: names of the parts, such as train and test.
        first: number of the first row of each part.
        count: rows of each part.
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
    """A number from 0 to 1 that depends on the key alone."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64
