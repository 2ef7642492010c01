"""Random choices that are the same on every machine and under every version of Python.

A list of words names a stream of choices; equal words give equal choices.
"""

from collections.abc import Sequence
from hashlib import sha256
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """A stream of choices named by its words.

    Everything is derived from `Random.random`, the only method whose values Python promises to keep across
    versions (NumPy promises none). A choice costs well under a microsecond.
    """

    def __init__(self, *words: str | int) -> None:
        name = "\n".join(str(word) for word in words)
        self.random = Random(int.from_bytes(sha256(name.encode()).digest()[:8], "big")).random

    def below(self, n: int) -> int:
        """An integer in [0, n)."""
        return int(self.random() * n)

    def between(self, low: int, high: int) -> int:
        """An integer in [low, high]."""
        return low + int(self.random() * (high - low + 1))

    def chance(self, probability: float) -> bool:
        """True with that probability."""
        return self.random() < probability

    def choice(self, options: Sequence[T]) -> T:
        """One of the options; all are equally likely."""
        return options[int(self.random() * len(options))]

    def sample(self, options: Sequence[T], k: int) -> list[T]:
        """At most k of the options, in random order."""
        rest = list(options)
        k = min(k, len(rest))
        for i in range(k):
            j = i + int(self.random() * (len(rest) - i))
            rest[i], rest[j] = rest[j], rest[i]
        return rest[:k]
