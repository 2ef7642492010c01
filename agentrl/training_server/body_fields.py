"""Fields of JSON bodies: each reader returns a value of one type, or raises Refusal with a sentence."""

import math
from collections.abc import Mapping
from typing import Any

from agentrl.http import Refusal

Body = Mapping[str, Any]


def refuse(what: str, value: Any, wanted: str) -> Refusal:
    """The refusal of a value."""
    return Refusal(400, f"{what} = {value!r:.100} is not {wanted}")


def text(body: Body, name: str, default: str | None = None) -> str:
    """A text; `default` if it is missing or null, and Refusal without a default."""
    value = body.get(name)
    value = default if value is None else value
    if value is None:
        raise Refusal(400, f"{name} is missing: send a text")
    if not isinstance(value, str) or len(value) > 1000:
        raise refuse(name, value, "a text of at most 1000 characters")
    return value


def whole(body: Body, name: str, low: int, high: int, default: int | None = None) -> int:
    """A whole number from `low` to `high`; `default` as in `text`."""
    value = optional_whole(body, name, low, high)
    if value is None and default is None:
        raise Refusal(400, f"{name} is missing: send a whole number from {low} to {high}")
    return default if value is None else value  # type: ignore[return-value]


def optional_whole(body: Body, name: str, low: int, high: int) -> int | None:
    """A whole number from `low` to `high`; None if it is missing or null."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise refuse(name, value, f"a whole number from {low} to {high}")
    return value


def number(body: Body, name: str, default: float, low: float = 0.0, high: float = math.inf) -> float:
    """A finite number from `low` to `high`; `default` if it is missing or null."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise refuse(name, value, "a number")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found) or not low <= found <= high:
        most = f" and at most {high:g}" if high < math.inf else ""
        raise refuse(name, value, f"a finite number of at least {low:g}{most}")
    return found


def flag(body: Body, name: str, default: bool = False) -> bool:
    """True or false; `default` if it is missing or null."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise refuse(name, value, "true or false")
    return value


def table(body: Body, name: str) -> Body:
    """An object; empty if it is missing or null."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise refuse(name, value, "an object")
    return value


def items(body: Body, name: str) -> list[Any]:
    """A list; Refusal if it is missing."""
    value = body.get(name)
    if not isinstance(value, list):
        raise refuse(name, value, "a list")
    return value


def texts(body: Body, name: str) -> dict[str, str] | None:
    """An object of texts, at most 100; None if it is missing or null."""
    value = body.get(name)
    if value is None:
        return None
    plain = isinstance(value, Mapping) and all(isinstance(one, str) for one in value.values())
    if not plain or len(value) > 100:
        raise refuse(name, value, "an object of at most 100 texts")
    return dict(value)
