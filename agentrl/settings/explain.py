"""What the sections and keys of a recipe mean, read from the docstrings of their configuration classes.

`agentrl train --explain KEY` prints these meanings; `make docs` builds the pages of options from them.
"""

import inspect
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from agentrl import catalogue
from agentrl.catalogue import nearest
from agentrl.settings import defaults
from agentrl.settings.agents import AgentSection
from agentrl.settings.recipe import Settings
from agentrl.settings.sections import Tables

CATALOGUE = {  # section -> the catalogue whose entries its `name` chooses
    "env": "envs",
    "engine": "engine",
    "context": "context",
    "sampler": "sampler",
    "guide": "guide",
    "replay": "replay",
    "rollout": "rollout",
    "score": "score",
    "reward": "reward",
    "credit": "credit",
    "loss": "loss",
    "update.regularizers": "regularizer",
}
TABLES = {"env.tools": "tools", "log.options": "tracker"}  # key that holds options by entry -> the entries' catalogue


@dataclass(frozen=True, kw_only=True)
class Key:
    """A key of a section.

    Attributes:
        path: dotted path, such as `optim.lr`.
        type: type in words, such as `whole number` or `"adamw" | "muon"`.
        default: default as TOML writes it; empty if the key must be given, `none` if the key has no value by default.
        meaning: text from the docstring.
        chosen: the values that are chosen for each kind of model if the recipe leaves the key open; may be empty.
    """

    path: str
    type: str
    default: str
    meaning: str
    chosen: str = ""


def explained(path: str, settings: Settings | None = None) -> str:
    """The text that `agentrl train --explain PATH` prints on a key or a section; on all sections if `path` is empty.

    Args:
        path: dotted name of a key or a section.
        settings: the settings of a recipe; then the text also has the value of the key in this recipe.

    Raises:
        ValueError: there is no such section or key. The message names the nearest ones.
    """
    if not path:
        return overview()
    if settings is not None and (own := _of_own_environment(path, settings)):
        return own
    return _meaning(path) + ("" if settings is None else f"\n{_in_recipe(path, settings)}")


def _of_own_environment(path: str, settings: Settings) -> str:
    """The text on an option of the recipe's environment, `env.KEY` or a part of it; empty for other paths."""
    head, _, rest = path.partition(".")
    found = [key for key in keys("env", settings.env.hooks.config) if f"{path}.".startswith(f"{key.path}.")]
    if head != "env" or not rest or not found:
        return ""
    told = f"{_told(found[0])}\n{_in_recipe(path, settings)}"
    signals = getattr(settings.env.hooks.make, "signals", None)
    if rest.partition(".")[0] != "weights" or not callable(signals):
        return told
    listed = ", ".join(f"{name} ({weight:g})" for name, weight in signals().items())
    return f"{told}\nsignals of {settings.env.name} and their weights: {listed or 'none that are known beforehand'}"


def _in_recipe(path: str, settings: Settings) -> str:
    """The value of a key in a recipe, or the values of all keys of a section, as TOML."""
    shown, (first, _, rest) = settings.shown(), path.partition(".")
    entry, _, option = rest.partition(".")
    if first in CATALOGUE and entry in catalogue.names(CATALOGUE[first]):  # credit.gigpo.gamma is the key credit.gamma
        used = defaults.stored_value(shown, f"{first}.name")
        if used != entry:
            return f"in {settings.recipe}: not used, because {first}.name is {_as_toml(used)}"
        path = f"{first}.{option}" if option else first
    value = defaults.stored_value(shown, path)
    if value is None:
        return f"in {settings.recipe}: not set"
    values = {f"{path}.{key}": one for key, one in value.items()} if value and isinstance(value, Mapping) else {}
    values = values or {path: value}
    left = {key: ", chosen because the recipe leaves it open" for key in values if key in settings.chosen}
    return "\n".join(f"in {settings.recipe}: {key} = {_as_toml(one)}{left.get(key, '')}" for key, one in values.items())


def _meaning(path: str) -> str:
    """The text on a key or a section."""
    sections = dict(models())
    if path in sections or path in CATALOGUE:
        return section(path)
    above, _, key = path.rpartition(".")
    if key == "name" and above in CATALOGUE:
        chosen = f"\n    chosen where the recipe leaves it open: {_chosen(path)}" if _chosen(path) else ""
        return f"{section(above)}{chosen}"
    for found in _keys_below(above, sections):
        if found.path == path:
            return _told(found)
    entry = _entry(path)
    if entry is not None:
        return entry
    known = [*sections, *CATALOGUE, *(f.path for f in _keys_below(above, sections))]
    raise ValueError(
        f"a recipe has no section or key {path!r}{nearest(path, known) if above else _nearest_top(path, known)}"
    )


def _nearest_top(path: str, known: list[str]) -> str:
    return nearest(path, [name for name in known if "." not in name])


def overview() -> str:
    """Text with every section and the first paragraph of its meaning."""
    lines = ["the sections of a recipe; agentrl train --explain SECTION lists its keys", ""]
    names = {**{name: first_line(model) for name, model in models()}, **{name: choice(name) for name in CATALOGUE}}
    width = max(map(len, names))
    return "\n".join([*lines, *(f"  [{name}]{'':{width - len(name)}}  {names[name]}" for name in in_order(names))])


def section(name: str) -> str:
    """Text on a section, with all its keys."""
    parts: list[str] = []
    model = dict(models()).get(name)
    if model is not None:
        parts += [f"[{name}] {first_line(model)}", *(_told(key) for key in keys(name, model))]
    if name in CATALOGUE:
        listed = ", ".join(catalogue.names(CATALOGUE[name]))
        parts += [f"[{name}] {choice(name)}", f"name: one of {listed}; --explain {name}.NAME explains an entry"]
    return "\n".join(parts)


def models() -> Iterator[tuple[str, type[BaseModel]]]:
    """(dotted name, class) of every section whose keys do not depend on a catalogue entry, in the order of a recipe."""
    for name, field in Tables.model_fields.items():
        for model in _classes(field.annotation):
            yield name, model
            for key, inner in model.model_fields.items():
                yield from ((f"{name}.{key}", below) for below in _classes(inner.annotation))
                if (name, key) == ("warmup", "optim"):
                    yield "warmup.optim", dict(_classes_of_tables())["optim"]
    yield "agents.NAME", AgentSection


def known_keys() -> list[str]:
    """The dotted names of all keys that do not depend on a catalogue entry."""
    return [key.path for name, model in models() for key in keys(name, model)]


def _classes_of_tables() -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in Tables.model_fields.items():
        yield from ((name, model) for model in _classes(field.annotation))


def _classes(annotation: Any) -> Iterator[type[BaseModel]]:
    """The pydantic models that a field holds."""
    for one in (annotation, *get_args(annotation)):
        if isinstance(one, type) and issubclass(one, BaseModel):
            yield one


def keys(name: str, model: type[BaseModel]) -> Iterator[Key]:
    """The keys of a section."""
    meant = meanings(model)
    for key, field in model.model_fields.items():
        path = f"{name}.{key}"
        yield Key(
            path=path,
            type=type_in_words(field.annotation),
            default=_default(path, field),
            meaning=meant.get(key, ""),
            chosen=_chosen(path),
        )


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Field -> meaning, from the docstrings of a class and its bases: `name: text` or `name, name: text`."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if isinstance(one, type) and issubclass(one, BaseModel) and one is not BaseModel and one.__doc__:
            found |= _named(inspect.cleandoc(one.__doc__), list(model.model_fields))
    return found


def _named(text: str, names: list[str]) -> dict[str, str]:
    """Name of a field -> the text after `NAME:`. `names` are the fields.

    `NAME:` stands at the beginning of a line, or after a full stop, a semicolon or a closing bracket.
    """
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or "(?!)"
    word = r"[a-z_]\w*"
    line, sentence = rf"^\s*({word}(?:(?:, | and ){word})*):\s", rf"[.;)]\s+((?:{known})(?:, (?:{known}))*):\s"
    starts = sorted(re.finditer(f"{line}|{sentence}", text, re.M), key=lambda match: match.start())
    found: dict[str, str] = {}
    for place, match in enumerate(starts):
        end = starts[place + 1].start() + 1 if place + 1 < len(starts) else len(text)
        meaning = " ".join(text[match.end() : end].partition("\n\n")[0].split()).rstrip(";")
        found |= dict.fromkeys(re.split(r", | and ", match[1] or match[2]), meaning)
    return {name: meaning for name, meaning in found.items() if name in names}


def first_line(model: type[BaseModel]) -> str:
    """The first paragraph of a class's docstring, without `Section [NAME]:`."""
    text = " ".join(inspect.cleandoc(model.__doc__ or "").partition("\n\n")[0].split())
    return re.sub(r"^Section \[[^\]]*\][^:;.]*[:;.]\s*", "", text)


def type_in_words(annotation: Any) -> str:
    """A type in words for the reader of a recipe: `whole number`, `"a" | "b"`, `list of text`."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " | ".join(f'"{value}"' if isinstance(value, str) else str(value) for value in inner)
    if origin in (Union, types.UnionType):
        return " | ".join(type_in_words(one) for one in inner if one is not type(None))
    if origin in (tuple, list):
        return f"list of {type_in_words(inner[0])}" if inner else "list"
    if origin in (dict, Mapping) or annotation is dict:
        return "table"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    return {"str": "text", "bool": "true | false", "float": "number", "int": "whole number"}.get(
        getattr(annotation, "__name__", ""), str(annotation).replace("typing.", "")
    )


def _default(path: str, field: Any) -> str:
    if field.is_required():
        return ""
    if path.startswith("warmup.optim."):
        return "that of [optim]"
    value = field.get_default(call_default_factory=True)
    if value is None or value is PydanticUndefined:
        return "none"
    return _as_toml(value)


def _as_toml(value: Any) -> str:
    if isinstance(value, BaseModel):
        return "its own"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_as_toml, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_as_toml(one)}" for key, one in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _chosen(path: str) -> str:
    """Words on what `agentrl.settings.defaults` chooses for a key, by kind of model; empty if it chooses nothing."""
    by_kind = {kind: value for kind in defaults.OPTIM if (value := defaults.of_kind(kind).get(path)) is not None}
    told = [f"{_as_toml(value)} for {defaults.IN_WORDS[kind]}" for kind, value in by_kind.items()]
    return ", ".join([*told, *([defaults.BY_ENVIRONMENT[path]] if path in defaults.BY_ENVIRONMENT else [])])


def _told(key: Key) -> str:
    """The text on a key: type, default, meaning and chosen values."""
    default = f"default {key.default}" if key.default else "must be given"
    chosen = f"\n    chosen where the recipe leaves it open: {key.chosen}" if key.chosen else ""
    return f"{key.path}: {key.type}, {default}\n    {key.meaning}{chosen}"


def choice(name: str) -> str:
    """One line on a section that names a catalogue entry."""
    return f"{_WHAT[name]}: `name`, and the options of that entry"


_WHAT = {
    "env": "the environment to train in",
    "engine": "what generates text",
    "context": "which part of an episode the model sees",
    "sampler": "which tasks are drawn",
    "guide": "help for tasks that fail (only if `name` is set)",
    "replay": "stored rollouts that join a batch (only if `name` is set)",
    "rollout": "how a task is played several times",
    "score": "named signals from rules or models, of which rewards can be made (one table, or a list of tables)",
    "reward": "rewards composed of signals (one table, or a list of tables)",
    "credit": "from rewards to what each step earned",
    "loss": "the policy loss",
    "update.regularizers": "terms added to the policy loss, a list of tables",
}


def _keys_below(name: str, sections: Mapping[str, type[BaseModel]]) -> Iterator[Key]:
    if name in sections:
        yield from keys(name, sections[name])


def _entry(path: str) -> str | None:
    """The text on an option of a catalogue entry, `credit.gigpo.gamma`, or on the whole entry, `credit.gigpo`.

    An option without an entry, `credit.gamma`, is explained for every entry that has it. None if `path` is not in a
    section with a catalogue.
    """
    for name, kind in {**TABLES, **CATALOGUE}.items():  # env.tools before env
        if not path.startswith(f"{name}."):
            continue
        rest = path.removeprefix(f"{name}.")
        known = catalogue.names(kind)
        entry, _, option = rest.partition(".")
        if entry in known:
            listed = list(entry_keys(name, entry))
            if not option:
                return _whole_entry(name, entry)
            found = [key for key in listed if key.path.endswith(f".{option}")]
            if not found:
                names = [key.path.rpartition(".")[2] for key in listed]
                where = f"{name}.name={entry}" if name in CATALOGUE else f"{name}.{entry}"
                raise ValueError(f"{where} has no option {option!r}{nearest(option, names)}")
            return _told(found[0])
        listed = [key for one in known for key in entry_keys(name, one)]
        having = [key for key in listed if f"{rest}.".startswith(f"{key.path.rpartition('.')[2]}.")]
        if having:
            return _told_of_all(having)
        near = nearest(rest, {*known, *_options(name)})
        if "did you mean" not in near:
            near = f": --explain {name}.NAME lists the options of an entry, such as --explain {name}.{known[0]}"
        raise ValueError(f"[{name}] has no entry and no option {rest!r}{near}")
    return None


def _told_of_all(found: Sequence[Key]) -> str:
    """The texts on keys of several entries; entries with equal texts share one."""
    texts: dict[str, list[str]] = {}
    for key in found:
        texts.setdefault(_told(key).partition(":")[2], []).append(key.path)
    return "\n".join(f"{', '.join(paths)}:{text}" for text, paths in texts.items())


def _whole_entry(name: str, entry: str) -> str:
    """The docstring of a catalogue entry and all its options."""
    first, _, more = catalogue.load(_kind(name), entry).about.partition("\n\n")
    head = f'[{name}] name = "{entry}"' if name in CATALOGUE else f"[{name}.{entry}]"
    options = "\n".join(map(_told, entry_keys(name, entry)))
    return "\n\n".join(part for part in (f"{head}: {' '.join(first.split())}", more.strip(), options) if part)


def _kind(name: str) -> str:
    """The catalogue whose entries have options in a section or a key."""
    return CATALOGUE[name] if name in CATALOGUE else TABLES[name]


def _options(name: str) -> Iterator[str]:
    for entry in catalogue.names(_kind(name)):
        yield from (key.path.rpartition(".")[2] for key in entry_keys(name, entry))


def entry_keys(name: str, entry: str) -> Iterator[Key]:
    """The options of a catalogue entry, with paths such as `credit.gigpo.gamma`."""
    model = catalogue.load(_kind(name), entry).config
    if isinstance(model, type) and issubclass(model, BaseModel):
        yield from keys(f"{name}.{entry}", model)


def in_order(names: Iterable[str]) -> list[str]:
    """The names of sections, sorted in the order of a recipe."""
    order = {name: place for place, name in enumerate(Tables.model_fields)}
    return sorted(names, key=lambda name: (order.get(name.partition(".")[0], len(order)), "." in name, name))


def chosen_comments(settings: Settings) -> list[str]:
    """The notes on a run's settings and the values that were chosen for its kind of model, as comments."""
    kind = defaults.IN_WORDS[defaults.kind_trained(settings.tables)]
    chosen = [f"#   {path} = {_as_toml(value)}" for path, value in settings.chosen.items()]
    notes = [f"# note: {note}" for note in settings.notes]
    head = f"# the recipe leaves these open; chosen for {kind} in {settings.env.name}:"
    return [*notes, *([head, *chosen, ""] if chosen else [])]


def absent_comments(settings: Settings) -> list[str]:
    """The sections and keys that a run's configuration does not show because they have no value, as comments."""
    shown, lines = settings.dump(), list[str]()
    for name, model in models():
        table = defaults.stored_value(shown, name)
        if name in ("agents.NAME", "warmup.optim"):
            continue
        if table is None:
            lines += [f"# [{name}]", *(f"# {key.path.rpartition('.')[2]} = {key.default}" for key in keys(name, model))]
            continue
        plain = [key for key, field in model.model_fields.items() if not [*_classes(field.annotation)]]
        unset = [key for key in plain if key not in table]
        lines += [f"# [{name}] {key}: not set" for key in unset]
    listed = "[[update.regularizers]], [[score]], [[reward]], [agents.NAME], [warmup.optim]"
    more = f"# {listed}: agentrl train --explain SECTION"
    return ["# not in this recipe:", *lines, more]
