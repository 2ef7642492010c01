"""Configuration: one TOML file of typed sections, dotted overrides; unknown keys name the nearest one."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Generic, NamedTuple, TypeVar, overload

from pydantic import BaseModel, ValidationError

from agentrl import catalogue
from agentrl.catalogue import CatalogueFile, File
from agentrl.secret import redacted, scrubbed

Model = TypeVar("Model", bound=BaseModel)


class Entry(NamedTuple, Generic[File]):
    """A catalogue entry with its validated options: `entry.hooks.make(entry.config)`."""

    name: str
    hooks: File
    config: Any

    def dump(self) -> dict[str, Any]:
        """The section as it would be written, every default included."""
        return {"name": self.name, **self.config.model_dump(mode="json")}


def parse_value(text: str) -> Any:
    """The value of an override: TOML where it is TOML, else the text itself."""
    try:
        read = tomllib.loads(f"x = {text}")
    except (ValueError, RecursionError):
        return text
    return read["x"] if len(read) == 1 else text  # several lines are a text, not several keys


def override(tables: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The tables with `section.key=value` texts applied, later ones winning."""
    result = _copy(tables)
    for text in overrides:
        path, equals, value = text.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise ValueError(f"{text!r} is not an override: write section.key=value, such as credit.gamma=0.9")
        table: Any = result
        for key in keys[:-1]:
            table = _section(table, key, text)
        if not isinstance(table, dict):
            raise ValueError(f"{text!r}: {'.'.join(keys[:-1])} is no section, but a list of them")
        table[keys[-1]] = parse_value(value.strip())
    return result


def _section(table: Any, key: str, text: str) -> Any:
    """The section of this name; in a list of sections (`[[reward]]`) `0` is the first."""
    if isinstance(table, list):
        if not key.isdigit() or int(key) >= len(table):
            raise ValueError(f"{text!r}: {key} is none of {len(table)} sections: they are numbered from 0")
        return table[int(key)]
    found = table.setdefault(key, {})
    if not isinstance(found, dict | list):
        raise ValueError(f"{text!r}: {key} is a value, not a section")
    return found


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`, tables merged key by key."""
    result = _copy(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merge(result[key], value) if both else value
    return result


def _copy(tables: Mapping[str, Any]) -> dict[str, Any]:
    def copied(value: Any) -> Any:
        if isinstance(value, list):
            return [copied(one) for one in value]
        return _copy(value) if isinstance(value, Mapping) else value

    return {key: copied(value) for key, value in tables.items()}


def validate(model: type[Model], values: Mapping[str, Any], where: str = "", beside: Iterable[str] = ()) -> Model:
    """The model of some values; ValueError names the key in full, what is wrong, and the nearest key.

    Args:
        model: what they must be.
        values: the keys of a table.
        where: the table's name in error sentences.
        beside: keys of the table that the model does not hold, which a mistyped key may have meant.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise ValueError(_sentence(model, error, where, beside)) from None


def _sentence(model: type[BaseModel], error: ValidationError, where: str, beside: Iterable[str]) -> str:
    first = error.errors()[0]
    parts = [str(part) for part in first["loc"]]
    key = ".".join(part for part in [where, *parts] if part)
    if first["type"] == "extra_forbidden":
        known = [*_fields(model, parts[:-1]), *(beside if len(parts) == 1 else ())]
        return f"unknown key {key}{catalogue.nearest(parts[-1], known)}"
    if first["type"] == "missing":
        return f"{key} is missing: give it a value"
    message = first["msg"].removeprefix("Value error, ")
    shown = redacted(first["input"], tuple(key.split(".")))
    return scrubbed(f"{key} = {shown!r:.200}: {message[:1].lower() + message[1:]}")


def _fields(model: Any, path: Sequence[str]) -> Iterable[str]:
    """The field names of the model that a path of keys leads to."""
    for key in path:
        field = model.model_fields.get(key)
        candidates = [] if field is None else [field.annotation, *getattr(field.annotation, "__args__", ())]
        models = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if not models:
            return ()
        model = models[0]
    fields: Iterable[str] = model.model_fields
    return fields


@overload
def resolve(kind: type[File], section: Mapping[str, Any], where: str = "") -> Entry[File]: ...


@overload
def resolve(kind: str, section: Mapping[str, Any], where: str = "") -> Entry[Any]: ...


def resolve(kind: str | type[CatalogueFile], section: Mapping[str, Any], where: str = "") -> Entry[Any]:
    """The catalogue entry a section names, its options validated.

    Args:
        kind: the catalogue, by name or by the class of its entries.
        section: `name` and the entry's options.
        where: the section's name in error sentences; default: the catalogue's.
    """
    catalogue_name = kind if isinstance(kind, str) else kind.KIND
    options, place = dict(section), where or catalogue_name
    name = options.pop("name", None)
    if name is None:
        meant = [key for key in options if get_close_matches(key, ["name"])]
        if meant:
            raise ValueError(f"unknown key {place}.{meant[0]}: did you mean name?")
        raise ValueError(f"{place}.name is missing{catalogue.nearest('', catalogue.names(catalogue_name))}")
    if not isinstance(name, str):
        raise ValueError(f"{place}.name = {name!r}: it must be a text, the name of an entry")
    hooks: CatalogueFile = catalogue.load(kind, name)
    return Entry(name, hooks, validate(hooks.config, options, place, ["name"]))
