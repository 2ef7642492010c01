"""Reads the options of a credit method from `key=value` words, such as those of a command line or a form."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from agentrl import catalogue
from agentrl.config import parse_value


def parse_options(method: str, config: type[BaseModel], options: Sequence[str]) -> Any:
    """The method's Config from `key=value` words; a list or a table is written as in TOML.

    Raises:
        ValueError: a word is not key=value, a key is unknown or repeated, or a value does not fit its option.
    """
    values: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise ValueError(f"{option!r} is not an option: write key=value")
        if key not in config.model_fields:
            raise ValueError(f"{method} has no option {key!r}{catalogue.nearest(key, config.model_fields)}")
        if key in values:
            raise ValueError(f"option {key} is given twice: give it once")
        values[key] = parse_value(value) if value[:1] in ("[", "{") else value
    try:
        return config.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = first["loc"][0] if first["loc"] else "its options"
        value = f"={values[name]}" if name in values else ""
        raise ValueError(f"{method}: {name}{value}: {first['msg'].removeprefix('Value error, ')}") from None
