"""Common parts of environments with generated tasks: rows that are made when they are read, and parts of tasks."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Part = Literal["train", "valid", "test"]
PARTS: tuple[Part, ...] = ("train", "valid", "test")
FIFTHS: tuple[Part, ...] = ("train", "train", "train", "valid", "test")  # the part of each fifth of what is generated


class MadeRows(Sequence[Mapping[str, Any]]):
    """Rows of tasks; a row is made when it is read. A subclass has `__len__` and `_make`."""

    def __getitem__(self, i: Any) -> Any:
        return [self[j] for j in range(*i.indices(len(self)))] if isinstance(i, slice) else self._make(i)

    @abc.abstractmethod
    def _make(self, i: int) -> Mapping[str, Any]:
        """The row with this number."""
