"""A Gymnasium space of all Unicode strings. Gymnasium's `Text` would need large tables of its character set."""

import sys
from collections.abc import Sequence
from typing import Any, SupportsInt, overload

import numpy as np
from gymnasium.spaces import Text
from gymnasium.spaces.utils import flatten
from gymnasium.vector.utils import read_from_shared_memory


class CodePoints(Sequence[str]):
    """A sequence of all Unicode code points, the character set of a space; it stores no entries in memory."""

    def __len__(self) -> int:
        return sys.maxunicode + 1

    def __contains__(self, char: object) -> bool:
        return isinstance(char, str) and len(char) == 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: SupportsInt | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [chr(i) for i in range(*index.indices(len(self)))]
        if not 0 <= int(index) < len(self):
            raise IndexError(f"no code point {index}")
        return chr(int(index))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CodePoints)

    def __hash__(self) -> int:
        return hash(CodePoints)


class UnicodeText(Text):
    """Any string of `min_length` to `max_length` characters; the index of a character is its code point.

    A sample without a mask is printable ASCII, at most 64 characters if `min_length` allows it, because a uniform draw
    over Unicode would give thousands of unassigned code points.
    """

    def __init__(self, max_length: int, *, min_length: int = 0, seed: int | np.random.Generator | None = None) -> None:
        if not 0 <= min_length <= max_length:
            raise ValueError(f"a text space needs 0 <= min_length <= max_length, got {min_length} and {max_length}")
        self.min_length, self.max_length = min_length, max_length
        super(Text, self).__init__(dtype=str, seed=seed)  # Text would build tables of every character

    @property
    def character_set(self) -> Any:
        """All code points."""
        return CodePoints()

    @property
    def character_list(self) -> Any:
        """All code points in order."""
        return CodePoints()

    @property
    def characters(self) -> Any:
        """All code points in order."""
        return CodePoints()

    def character_index(self, char: str) -> np.int32:
        """The code point."""
        return np.int32(ord(char))

    def contains(self, x: Any) -> bool:
        """Is x a string whose length is in range?"""
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A random text of printable ASCII; with a mask or probabilities, the sample of `Text.sample`."""
        if mask is not None or probability is not None:
            return str(super().sample(mask, probability))
        length = self.np_random.integers(self.min_length, max(self.min_length, min(64, self.max_length)) + 1)
        return "".join(chr(i) for i in self.np_random.integers(32, 127, size=length))

    def __repr__(self) -> str:
        return f"UnicodeText({self.min_length}, {self.max_length})"


@flatten.register(UnicodeText)
def _flatten(  # type: ignore[misc]
    space: UnicodeText, x: str
) -> np.ndarray:
    """[max_length] int32 code points; the padding is the size of the character set, as in `Text`."""
    flat = np.full(space.max_length, len(CodePoints()), np.int32)
    flat[: len(x)] = np.frombuffer(x.encode("utf-32-le", "surrogatepass"), "<i4")
    return flat


class SharedTexts(Sequence[str]):
    """The current texts of n environments in shared memory; a deep copy is a tuple of the texts.

    `AsyncVectorEnv` (Gymnasium 1.4) reads the shared memory once, and deep-copies the result after each step. For a
    space of numbers the result is an array: a view of the memory, which shows the new observations. A tuple of texts
    would keep the first observations, so this class is a view, too.
    """

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows  # [n, max_length] int32

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return tuple(self)[index]
        row = self._rows[index]
        used = row[: int((row < len(CodePoints())).sum())]
        data: bytes = used.astype("<i4").tobytes()
        return data.decode("utf-32-le", "surrogatepass")

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[str, ...]:
        return tuple(self)


@read_from_shared_memory.register(UnicodeText)
def _read(space: UnicodeText, shared_memory: Any, n: int = 1) -> SharedTexts:
    return SharedTexts(np.frombuffer(shared_memory.get_obj(), np.int32).reshape(n, space.max_length))
