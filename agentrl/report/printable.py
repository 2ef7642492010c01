"""Prepares texts and numbers for JSON files.

JSON of other programs may hold lone surrogates, which UTF-8 cannot encode, and JSON has no NaN and no infinity.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

Value = TypeVar("Value")


def printable(value: Value) -> Value:
    """A JSON value in which each lone surrogate, in texts and keys, is replaced by a question mark."""
    return _printable(value)  # type: ignore[no-any-return]


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_printable(key): _printable(inner) for key, inner in value.items()}
    return [_printable(inner) for inner in value] if isinstance(value, list) else value


def cut(text: str, most: int) -> str:
    """The text, or its first `most` characters and a note on how many were cut off.

    Each lone surrogate becomes a question mark.
    """
    text = printable(text)
    if len(text) <= most:
        return text
    return f"{text[:most]} … ({len(text) - most} more characters)"


def numbers(values: np.ndarray) -> list[float | None]:
    """Numbers for JSON, rounded to six significant digits; None for NaN and infinities."""
    return [float(f"{x:.6g}") if np.isfinite(x) else None for x in np.asarray(values, np.float64).tolist()]
