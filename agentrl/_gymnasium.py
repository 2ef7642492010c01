"""Registers our Gymnasium ids as soon as Gymnasium is imported elsewhere, without importing it here.

Gymnasium calls no entry points since version 1.0. Importing Gymnasium here would slow down the start of every command.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
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
        self.inner.exec_module(module)
        importlib.import_module("agentrl.gym")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds Gymnasium, once, and no other module."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def announce() -> None:
    """Register our ids now if Gymnasium is imported already, else as soon as it is imported."""
    if "gymnasium" in sys.modules:
        importlib.import_module("agentrl.gym")
    else:
        sys.meta_path.insert(0, _Finder())
