"""Noise as a function of a key: the same key and index give the same number, independently of earlier draws."""

from collections.abc import Sequence

import numpy as np

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = (1 << 64) - 1


def fold(key: Sequence[int]) -> int:
    """A noise key as one 64-bit integer, by chained splitmix64; the order and the number of its parts matter."""
    state = len(key)
    for part in key:
        state = _mix((state + _GOLDEN + (int(part) & _MASK)) & _MASK)
    return state


def uniforms(folded: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Noise of token `index` under each folded key.

    Args:
        folded: [B] uint64 from `fold`.
        index: [B] int64 >= 0.

    Returns:
        [B] float64 strictly inside (0, 1): multiples of 2**-53, so never 0 or 1 after rounding.
    """
    with np.errstate(over="ignore"):
        x = folded.astype(np.uint64) + (index.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)  # [B]
        x = (x ^ (x >> np.uint64(30))) * np.uint64(_MIX_1)  # [B]
        x = (x ^ (x >> np.uint64(27))) * np.uint64(_MIX_2)  # [B]
        x ^= x >> np.uint64(31)
    noise: np.ndarray = ((x >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52  # [B]
    return noise


def _mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * _MIX_1) & _MASK
    x = ((x ^ (x >> 27)) * _MIX_2) & _MASK
    return x ^ (x >> 31)
