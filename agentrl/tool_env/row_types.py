"""Checks that the values of a row have the types that `reset` asks for, also inside lists and mappings."""

import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

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
