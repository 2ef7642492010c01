"""Finds catalogue entries by name and reads them into typed values.

An entry is a Python file in a catalogue folder, an entry point of an installed package, any module by its dotted path,
or a `.py` file by its path. The hooks of a file are the functions and constants in it that have fixed names. Each
catalogue has a class whose fields are these hooks (`agentrl.credit.CreditMethod`, `agentrl.env.EnvironmentFile`, ...);
`load` imports the file once, checks its hooks, and returns a frozen value of that class. No other module of the core
asks a catalogue file for an attribute.
"""

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType, ModuleType, NoneType, UnionType
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, overload

from agentrl.user_code import imported, loaded, refuse_of_data


class Kind(NamedTuple):
    """A catalogue.

    Attributes:
        package: dotted name of the package that holds the files of the entries.
        word: what error messages call an entry.
        home: the class of the entries, as `module:class`.
        only: names of the entries, if the package also holds modules that are no entries; empty: every module of the
            package whose name does not begin with an underscore is an entry.
    """

    package: str
    word: str
    home: str
    only: tuple[str, ...] = ()


KINDS = MappingProxyType(
    {
        "envs": Kind("agentrl.envs", "environment", "agentrl.env.hooks:EnvironmentFile"),
        "tools": Kind("agentrl.tools", "tool", "agentrl.tool.protocol:ToolFile"),
        "credit": Kind("agentrl.algorithms.credit", "credit method", "agentrl.credit.method:CreditMethod"),
        "loss": Kind("agentrl.algorithms.loss", "loss", "agentrl.loss:Loss"),
        "rollout": Kind("agentrl.algorithms.rollout", "rollout", "agentrl.rollout.expansion:RolloutMethod"),
        "context": Kind("agentrl.algorithms.context", "context", "agentrl.rollout.context:ContextPolicy"),
        "reward": Kind("agentrl.algorithms.reward", "reward", "agentrl.credit.rewards:RewardTransform"),
        "score": Kind("agentrl.algorithms.score", "score", "agentrl.scoring.entry:ScoreFile"),
        "sampler": Kind("agentrl.algorithms.sampler", "sampler", "agentrl.rollout.sampler:SamplerFile"),
        "guide": Kind("agentrl.algorithms.guide", "guide", "agentrl.rollout.guide:GuideFile"),
        "replay": Kind("agentrl.algorithms.replay", "replay", "agentrl.rollout.replay_buffer:ReplayFile"),
        "regularizer": Kind(
            "agentrl.algorithms.regularizer", "regularizer", "agentrl.trainer.regularizer:RegularizerFile"
        ),
        "engine": Kind(
            "agentrl.engines", "engine", "agentrl.engines.entry:EngineFile", ("hf", "openai", "tinker", "vllm")
        ),
        "tracker": Kind(
            "agentrl.trackers", "tracker", "agentrl.trackers.entry:TrackerFile", ("tensorboard", "trackio", "wandb")
        ),
    }
)

EXPECTED: Mapping[Any, str] = MappingProxyType(
    {
        Any: "a class, the pydantic model of the options",
        Callable: "a function",
        Mapping: "a mapping",
        tuple: "a tuple of names, such as ('a',)",
        bool: "True or False",
        str: "a text",
    }
)  # type of a hook's field -> how error messages describe a value of this type


def hook(name: str = "", help: str = "", default: Any = MISSING) -> Any:
    """A field of a catalogue class.

    Args:
        name: name of the hook in the file; empty: the name of the field. An upper-case name is a constant.
        help: one line for `agentrl check --hooks` and the documentation.
        default: the value if a file lacks the hook (`dict`: a new empty dict); a hook without a default is required.
    """
    metadata = {"hook": name, "help": help}
    if default is dict:
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class CatalogueFile:
    """The hooks of one catalogue file. Each catalogue has a subclass.

    Attributes:
        name: the name by which the entry was loaded; if this name was an alias, the name that the alias stands for.
        module: dotted name of the entry's module, by which another process imports the module.
        about: the module's docstring.
        config: the pydantic model of the entry's options.
    """

    KIND: ClassVar[str] = ""

    name: str
    module: str
    about: str = ""
    config: Any = hook("Config", "pydantic model of the options")

    @property
    def label(self) -> str:
        """The last part of the name, for error messages and reports: no packages, no folders, no `.py`."""
        if self.name.endswith(".py"):
            return Path(self.name).stem
        return self.name.rpartition(".")[2]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the name of the module; unpickling reads the hooks from the module again."""
        return _again, (type(self), self.module, self.name)


File = TypeVar("File", bound=CatalogueFile)


def hooks_of(kind: type[CatalogueFile]) -> Iterator[tuple[str, Field[Any]]]:
    """(name in the file, field of the class) of every hook of a catalogue."""
    for one in fields(kind):
        if "hook" in one.metadata:
            yield one.metadata["hook"] or one.name, one


def class_of(kind: str) -> type[CatalogueFile]:
    """The class of a catalogue's entries."""
    entry_class: type[CatalogueFile] = located(KINDS[kind].home)
    return entry_class


def located(path: str) -> Any:
    """The object that `module:name` names. The core names optional packages in this way and never imports them.

    Raises:
        ValueError: this installation lacks the module.
    """
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise ValueError(f"this installation of agentrl lacks {error.name}: install agentrl-stepgraph again") from None


@cache
def _installed() -> Any:
    return entry_points()


@cache  # `select` compares every entry point of the installation, and a recipe asks for two dozen entries
def _installed_of(kind: str) -> tuple[EntryPoint, ...]:
    return tuple(_installed().select(group=f"agentrl.{kind}"))


def points(kind: str) -> Iterable[EntryPoint]:
    """The entry points by which installed packages add entries to a catalogue."""
    return _installed_of(kind)


def forget() -> None:
    """Clear the caches of entry names. Call this function if a package was installed after this process had started."""
    for known in (_installed, _installed_of, names):
        known.cache_clear()


@cache
def names(kind: str) -> tuple[str, ...]:
    """The names of a catalogue's entries, sorted: our files and the entry points of installed packages; no aliases."""
    package = importlib.import_module(KINDS[kind].package)
    files = [module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_")]
    installed = [point.name for point in points(kind)]
    return tuple(sorted({*(KINDS[kind].only or files), *installed}))


def aliases(kind: str) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    """Further names of a catalogue's entries: alias -> (name, options that the alias stands for)."""
    package = importlib.import_module(KINDS[kind].package)
    found: Mapping[str, tuple[str, Mapping[str, Any]]] = getattr(package, "ALIASES", {})
    return found


@overload
def load(kind: type[File], name: str) -> File: ...


@overload
def load(kind: str, name: str) -> Any: ...


def load(kind: str | type[CatalogueFile], name: str) -> Any:
    """One catalogue entry as a value of its catalogue's class.

    Args:
        kind: envs, tools, credit, loss, rollout, context, reward, score, sampler, guide, replay, regularizer, engine,
            tracker; or the class of the entries.
        name: name of an entry, an alias, the path of a `.py` file, or the (dotted) name of an importable module.

    Raises:
        ValueError: there is no such entry (the message lists similar names, or all names if none is similar), a file or
            a module cannot be imported, or the hooks of the entry are wrong (see `read`).
        UntrustedCode: data name the file or the module, see `agentrl.user_code.data_only`.
    """
    entry_class = class_of(kind) if isinstance(kind, str) else kind
    name, _ = aliases(entry_class.KIND).get(name, (name, {}))
    return read(_import(entry_class.KIND, name), entry_class, name)


def read(module: ModuleType, kind: type[File], name: str = "") -> File:
    """The hooks of a module, as a value of the catalogue's class `kind`.

    Raises:
        ValueError: a required hook is missing, a hook has the wrong type, or a name in the module is probably a
            misspelt hook.
    """
    named = name or module.__name__
    known = dict(hooks_of(kind))
    offered = {hook: vars(module)[hook] for hook in known if not isinstance(vars(module).get(hook), ModuleType | None)}
    what = KINDS[kind.KIND].word
    needed = {hook for hook, one in known.items() if one.default is one.default_factory is MISSING}
    missing = [hook for hook in known if hook in needed - offered.keys()]
    for wrong, meant in _misspelt(module, known.keys() - offered.keys(), needed):
        raise ValueError(f"{what} {named!r}: its file has {wrong}, which is nearly the hook {meant}: rename {wrong}")
    if missing:
        raise ValueError(f"{named!r} is no {what}: its file has no {' and no '.join(missing)}")
    for hook, value in offered.items():
        if not _fits(value, known[hook].type):
            due = _expected(known[hook].type)
            raise ValueError(f"{what} {named!r}: its {hook} is {value!r:.60}, and must be {due}")
    values = {known[hook].name: value for hook, value in offered.items()}
    return kind(name=named, module=module.__name__, about=(module.__doc__ or "").strip(), **values)


def _fits(value: Any, declared: Any) -> bool:
    """Does the value of a hook have the type of the hook's field? For type Any (`config`), a pydantic model fits."""
    base = get_origin(declared) or declared
    if base in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(declared))
    if base is Literal:
        return value in get_args(declared)
    if base is Any:
        return isinstance(value, type) and hasattr(value, "model_validate")
    if base is tuple:
        names = isinstance(value, Collection) and not isinstance(value, str | Mapping)
        return names and all(isinstance(name, str) for name in value)
    return isinstance(value, base)


def _expected(declared: Any) -> str:
    """What the value of a hook must be, in words."""
    base = get_origin(declared) or declared
    if base in (Union, UnionType):
        return " or ".join(_expected(one) for one in get_args(declared) if one is not NoneType)
    if base is Literal:
        return " or ".join(map(repr, get_args(declared)))
    return EXPECTED[base]


def _misspelt(module: ModuleType, absent: Iterable[str], needed: set[str]) -> Iterator[tuple[str, str]]:
    """(name, hook) for each name in the module that is similar to the name of a hook which the module lacks.

    A constant is compared only with constants, and a function only with functions. For a hook that every file must have
    (`needed`), a lower likeness is enough.
    """
    by_letter: dict[str, list[str]] = {}  # names that `_near` calls similar have the same first letter
    for hook in absent:
        by_letter.setdefault(hook[0].lower(), []).append(hook)
    for name, value in vars(module).items():
        if name.startswith("_") or isinstance(value, ModuleType):
            continue
        defined_here = getattr(value, "__module__", module.__name__) == module.__name__
        for hook in by_letter.get(name[0].lower(), ()) if defined_here else ():
            if callable(value) != hook.isupper() and _near(name, hook, 0.7 if hook in needed else 0.85):
                yield name, hook


def _near(name: str, hook: str, likeness: float) -> bool:
    """Do the names differ only in case, or are they similar?

    Similar names have the same first letter, lengths that differ by at most 2, and a ratio of equal characters
    (`SequenceMatcher.ratio`) above `likeness`; either both names are in upper case, or neither is.
    """
    if name.lower() == hook.lower():
        return True
    if abs(len(name) - len(hook)) > 2 or name.isupper() != hook.isupper() or name[0] != hook[0]:
        return False
    return SequenceMatcher(None, name, hook).ratio() > likeness


def _again(kind: type[File], module: str, name: str) -> File:
    return read(importlib.import_module(module), kind, name)


def _import(kind: str, name: str) -> ModuleType:
    word = KINDS[kind].word
    for point in points(kind):
        if point.name == name:
            module: ModuleType = loaded(point.load, f"{word} {name!r}")
            return module
    if name in names(kind):
        return imported(f"{KINDS[kind].package}.{name}", f"{word} {name!r}")
    if name.endswith(".py") or "." in name or names_module(name):
        refuse_of_data(name, f"{word} {name!r}")
        return _import_file(word, Path(name)) if name.endswith(".py") else imported(name, f"{word} {name!r}")
    known = [*names(kind), *aliases(kind)]
    files = [path.stem for path in Path.cwd().glob("*.py")]  # users keep their own entries in the working folder
    raise ValueError(f"unknown {word} {name!r}{nearest(name, known, besides=files)}")


def _import_file(word: str, path: Path) -> ModuleType:
    """The module in a file. The file's folder is added to `sys.path`, so that worker processes find the module, too."""
    if not path.is_file():
        raise ValueError(f"no such file: {path} (for {word})")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        module = imported(path.stem, f"{word} {str(path)!r}")
    except ValueError as error:
        hint = "; if it belongs to a package, name it by its dotted path, such as package.module"
        raise ValueError(f"{error}{hint if 'relative import' in str(error) else ''}") from error.__cause__
    if Path(getattr(module, "__file__", None) or "").resolve() != path.resolve():
        raise ValueError(f"{path}: Python finds another module with the name {path.stem!r}: rename the file")
    return module


def names_module(name: str) -> bool:
    """Can a module of this name be imported, such as a file in the working folder?"""
    return name.isidentifier() and importlib.util.find_spec(name) is not None


def nearest(name: str, known: Iterable[str], besides: Iterable[str] = ()) -> str:
    """The end of an error message: up to three names from `known` and `besides` that are similar to `name`.

    If no name is similar, the text lists all names in `known`.
    """
    known = sorted(known)
    close = get_close_matches(name, sorted({*known, *besides}), n=3, cutoff=0.6)
    return f": did you mean {' or '.join(close)}?" if close else f": known are {', '.join(known) or 'none'}"
