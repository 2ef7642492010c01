"""The tasks of a tool environment: one a row, split into training and test tasks by their keys."""

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

from agentrl.rows import Row, plain
from agentrl.types import Task

Split = Literal["all", "train", "test"]


class RowTasks(Sequence[Task]):
    """Tasks of rows, made when asked for. A row's `key` or `id` is the task's key, else its number."""

    def __init__(self, rows: Sequence[Row], env: str, split: Split, test_share: float) -> None:
        self._rows, self._env = rows, env
        self._chosen: Sequence[int] = range(len(rows))
        if split != "all":
            wanted = split == "test"
            self._chosen = [i for i in self._chosen if (draw(self._key(i)) < test_share) == wanted]

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        number = self._chosen[i]
        row = plain(self._row(number))
        return Task(key=self._key(number), env=self._env, seed=int(row.get("seed", number)), params=row)

    def _row(self, number: int) -> Row:
        row = self._rows[number]
        if not hasattr(row, "items"):
            raise ValueError(f"row {number} is {type(row).__name__}, not a mapping from column to value")
        return row

    def _key(self, number: int) -> str:
        row = self._row(number)
        name = next((row[column] for column in ("key", "id") if row.get(column) is not None), number)
        return f"{self._env}/{name}"


def draw(key: str) -> float:
    """A number from 0 to 1 that the key decides."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64
