"""Registers our Gymnasium ids as soon as other code imports Gymnasium. This module does not import Gymnasium.

Since version 1.0, Gymnasium no longer calls the entry points by which installed packages registered their ids. If this
module imported Gymnasium, every command would start more slowly.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType


class _Loader(importlib.abc.Loader):
    """Loads Gymnasium with the loader `inner`, then imports `agentrl.gym`, which registers our ids."""

    def __init__(self, inner: importlib.abc.Loader) -> None:
        self.inner = inner

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
        self.inner.exec_module(module)
        importlib.import_module("agentrl.gym")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds only the module `gymnasium`, by the other finders of `sys.meta_path`; wraps its loader in `_Loader`."""

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
    """Register our ids now if Gymnasium is already imported, else as soon as it is imported."""
    if "gymnasium" in sys.modules:
        importlib.import_module("agentrl.gym")
    else:
        sys.meta_path.insert(0, _Finder())
