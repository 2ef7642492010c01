"""Finds catalogue entries by name: a file in a catalogue folder, an entry point, or a dotted path."""

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType, ModuleType

CATALOGUES = MappingProxyType(
    {
        "envs": "agentrl.envs",
        "tools": "agentrl.tools",
        "credit": "agentrl.algorithms.credit",
        "loss": "agentrl.algorithms.loss",
        "rollout": "agentrl.algorithms.rollout",
        "context": "agentrl.algorithms.context",
        "reward": "agentrl.algorithms.reward",
        "sampler": "agentrl.algorithms.sampler",
    }
)
OFFERS = MappingProxyType(  # what the file of an entry must define
    {
        "envs": ("Config", "make", "tasks"),
        "tools": ("Config", "make"),
        "credit": ("Config", "credit"),
        "loss": ("Config", "loss"),
        "rollout": ("Config", "rollout", "leaves"),
        "context": ("Config", "ask"),
        "reward": ("Config", "reward"),
        "sampler": ("Config", "make"),
    }
)
WORD = MappingProxyType({"envs": "environment", "tools": "tool", "credit": "credit method"})


@cache
def names(kind: str) -> tuple[str, ...]:
    """Every name `load(kind, name)` takes, sorted: our files and what installed packages add."""
    package = importlib.import_module(CATALOGUES[kind])
    own = [module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_")]
    theirs = [point.name for point in entry_points(group=f"agentrl.{kind}")]
    return tuple(sorted({*own, *theirs}))


def load(kind: str, name: str) -> ModuleType:
    """The module of one catalogue entry.

    Args:
        kind: envs, tools, credit, loss, rollout, context, reward or sampler.
        name: a file's name, an entry point's, or the (dotted) name of an importable module.

    Raises:
        ValueError: no such entry (the sentence names the nearest known ones), or a module that is none.
    """
    module = _import(kind, name)
    missing = [offer for offer in OFFERS.get(kind, ("Config",)) if not hasattr(module, offer)]
    if missing:
        raise ValueError(f"{name!r} is no {WORD.get(kind, kind)}: its file has no {' and no '.join(missing)}")
    return module


def _import(kind: str, name: str) -> ModuleType:
    for point in entry_points(group=f"agentrl.{kind}"):
        if point.name == name:
            module: ModuleType = point.load()
            return module
    if name in names(kind):
        return importlib.import_module(f"{CATALOGUES[kind]}.{name}")
    if "." in name or _is_module(name):
        try:
            return importlib.import_module(name)
        except (ImportError, TypeError, ValueError) as error:  # the latter two: "." alone, "../file", "a..b"
            raise ValueError(f"{WORD.get(kind, kind)} {name!r} cannot be imported: {error}") from None
    raise ValueError(f"unknown {WORD.get(kind, kind)} {name!r}{nearest(name, names(kind))}")


def _is_module(name: str) -> bool:
    """Is it the name of a module that could be imported, such as that of a file in the working folder?"""
    return name.isidentifier() and importlib.util.find_spec(name) is not None


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error sentence: the nearest known names, or all of them."""
    known = sorted(known)
    close = get_close_matches(name, known, n=3, cutoff=0.6)
    return f": did you mean {' or '.join(close)}?" if close else f": known are {', '.join(known) or 'none'}"
