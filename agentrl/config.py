"""Configuration: a TOML file of typed sections, and dotted overrides.

An unknown key raises an error that lists similar known keys, or all known keys if none is similar.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Generic, NamedTuple, TypeVar, overload

from pydantic import BaseModel, PydanticUserError, ValidationError

from agentrl import catalogue
from agentrl.catalogue import CatalogueFile, File
from agentrl.option_words import option_at, wanted
from agentrl.secret import redacted, scrubbed
from agentrl.user_code import defined_at

Model = TypeVar("Model", bound=BaseModel)
MOST_MISTAKES = 3  # largest number of unknown and missing keys that an error message names
MOST_CHARS = 200  # largest number of characters of a wrong value that an error message shows


class Entry(NamedTuple, Generic[File]):
    """A catalogue entry with its validated options: `entry.hooks.make(entry.config)`."""

    name: str
    hooks: File
    config: Any

    def dump(self) -> dict[str, Any]:
        """The entry as a section of a recipe: its name and all its options, defaults included."""
        return {"name": self.name, **self.config.model_dump(mode="json")}


def parse_value(text: str) -> Any:
    """The value of an override: the TOML value that the text spells, or the text itself if it is no valid TOML."""
    try:
        read = tomllib.loads(f"x = {text}")
    except (ValueError, RecursionError):
        return text
    return read["x"] if len(read) == 1 else text  # line breaks could add further keys; such a value is taken as text


def override(tables: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of the tables in which each text `section.key=value` sets a value; later texts replace earlier values."""
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
            raise ValueError(f"{text!r}: {'.'.join(keys[:-1])} is a list of sections: name one by its number, from 0")
        table[keys[-1]] = parse_value(value.strip())
    return result


def _section(table: Any, key: str, text: str) -> Any:
    """The section `key` of a table. In a list of sections (`[[reward]]`) the keys are numbers from 0."""
    if isinstance(table, list):
        if not key.isdigit() or int(key) >= len(table):
            raise ValueError(f"{text!r}: there is no section {key}: the {len(table)} sections are numbered from 0")
        return table[int(key)]
    section = table.setdefault(key, {})
    if not isinstance(section, dict | list):
        raise ValueError(f"{text!r}: {key} is a value, not a section")
    return section


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """A table with the keys of both tables.

    If both tables have a key, the value of `over` counts. Two values that are tables are merged in the same way.
    """
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
    """The values of a table as a pydantic model.

    Args:
        model: the model.
        values: the keys and values of the table.
        where: the table's name in error messages.
        beside: keys that the table may have besides the model's fields. The message on an unknown key suggests them,
            too.

    Raises:
        ValueError: a value is wrong or missing, or a key is unknown; the message names the key and its section.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise ValueError(_sentence(model, error, where, beside)) from None
    except PydanticUserError as error:  # the class itself is wrong
        words = " ".join(str(error).partition("\n")[0].split())
        raise ValueError(f"[{where}] cannot be read: {words}{defined_at(model)}") from None


def _sentence(model: type[BaseModel], error: ValidationError, where: str, beside: Iterable[str]) -> str:
    """The mistakes in a table: all unknown keys and missing keys, else the first wrong value."""
    errors = error.errors()
    found = [
        *(_unknown(model, one["loc"], where, beside) for one in errors if one["type"] == "extra_forbidden"),
        *(f"{_key(where, one['loc'])} is missing: give it a value" for one in errors if one["type"] == "missing"),
    ]
    if found:
        more = f"; and {len(found) - MOST_MISTAKES} more mistakes" if len(found) > MOST_MISTAKES else ""
        return "; ".join(found[:MOST_MISTAKES]) + more
    first = errors[0]
    place = option_at(model, first["loc"])
    key = _key(where, first["loc"] if place is None else place[1])
    shown = redacted(first["input"], tuple(key.split(".")))
    message = wanted(first, place)
    if isinstance(shown, Mapping) and where and len(repr(shown)) > MOST_CHARS:  # a section; its message names its keys
        return scrubbed(f"[{key}]: {message}")
    return scrubbed(f"{key} = {shown!r:.{MOST_CHARS}}: {message}")


def _key(where: str, path: Iterable[Any]) -> str:
    return ".".join(part for part in [where, *map(str, path)] if part)


def _unknown(model: type[BaseModel], path: Sequence[Any], where: str, beside: Iterable[str]) -> str:
    known = [*_fields(model, [str(part) for part in path[:-1]]), *(beside if len(path) == 1 else ())]
    return f"unknown key {_key(where, path)}{catalogue.nearest(str(path[-1]), known)}"


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
    """The catalogue entry that a section names, with validated options.

    Args:
        kind: the catalogue, by name or by the class of its entries.
        section: `name` and the entry's options.
        where: the section's name in error messages; empty: the catalogue's name.

    Raises:
        ValueError: the name is missing or unknown, or an option is wrong.
    """
    catalogue_name = kind if isinstance(kind, str) else kind.KIND
    options, place = dict(section), where or catalogue_name
    name = options.pop("name", None)
    if name is None:
        misspelt = [key for key in options if get_close_matches(key, ["name"])]
        if misspelt:
            raise ValueError(f"unknown key {place}.{misspelt[0]}: did you mean name?")
        raise ValueError(f"{place}.name is missing{catalogue.nearest('', catalogue.names(catalogue_name))}")
    if not isinstance(name, str):
        raise ValueError(f"{place}.name = {name!r}: it must be a text, the name of an entry")
    name, meant = catalogue.aliases(catalogue_name).get(name, (name, {}))
    for key, value in meant.items():
        if options.setdefault(key, value) != value:
            raise ValueError(
                f"{place}.{key} = {options[key]!r}: {section['name']} is {name} with {key} = {value!r}; write "
                f"{place}.name = {name!r}"
            )
    hooks: CatalogueFile = catalogue.load(kind, name)
    return Entry(name, hooks, validate(hooks.config, options, place, ["name"]))
