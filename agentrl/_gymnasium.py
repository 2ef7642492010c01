"""Registers our Gymnasium ids as soon as Gymnasium is imported elsewhere, without importing it here.

Gymnasium calls no entry points since version 1.0. Importing Gymnasium here would slow down the start of every command.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType


class _Loader(importlib.abc.Loader):
    """Loads Gymnasium by its own loader, then imports `agentrl.gym`."""

    def __init__(self, inner: importlib.abc.Loader) -> None:
        self.inner = inner

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
        self.inner.exec_module(module)
        importlib.import_module("agentrl.gym")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds only the module `gymnasium`, with the other finders of `sys.meta_path`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "gymnasium":
            return None
        for finder in sys.meta_path:
            if isinstance(finder, _Finder):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader = None if spec.loader is None else _Loader(spec.loader)
                return spec
        return None


def announce() -> None:
    """Register our ids now if Gymnasium is imported already, else as soon as it is imported."""
    if "gymnasium" in sys.modules:
        importlib.import_module("agentrl.gym")
    else:
        sys.meta_path.insert(0, _Finder())
