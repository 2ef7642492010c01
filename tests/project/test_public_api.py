"""What each package offers: its public names, and that packages use one another through them only."""

import ast
import importlib
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORED = Path(__file__).with_name("public_names.json")
CORE = sorted(p.parent.name for p in ROOT.glob("agentrl/*/__init__.py") if not p.parent.is_symlink())
NESTED = [
    "engines.openai",
    "engines.tinker",
    "engines.vllm",
    "preflight.env_audit",
    "preflight.rows",
]  # packages in packages, with public names of their own
PACKAGES = sorted([*CORE, *NESTED])
PACKAGES.remove("cli")


@cache
def public(package: str) -> list[str]:
    return sorted(importlib.import_module(f"agentrl.{package}").__all__)


def test_every_package_is_listed():
    assert sorted(json.loads(STORED.read_text())) == PACKAGES


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_the_stored_ones(package):
    """A name added, renamed or removed is a decision: `python tests/project/test_public_api.py --write`."""
    assert public(package) == json.loads(STORED.read_text())[package]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there(package):
    module = importlib.import_module(f"agentrl.{package}")
    for name in module.__all__:
        assert getattr(module, name) is not None, name
    with pytest.raises(AttributeError):
        module.no_such_name  # noqa: B018


def owner(module: str) -> str:
    """The core package a module belongs to; empty for modules at the root and for catalogues."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "agentrl" and parts[1] in CORE else ""


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node; its expressions are not visited."""
    for below in ast.iter_child_nodes(node):
        if not isinstance(below, ast.expr):
            yield below
            yield from statements(below)


def crossings(path: Path, module: str) -> list[str]:
    """Imports of another package's module that is neither the package itself nor a `sections` module."""
    found = []
    for node in statements(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [(alias.name, "") for alias in node.names]
        for target, name in names:
            package = owner(target)
            if not package or package == owner(module) or target.endswith(".sections"):
                continue
            inside = target.count(".") > 1 and target.removeprefix("agentrl.") not in NESTED
            public_names = importlib.import_module(target).__all__ if not inside else []
            listed = name in public_names or name in ("", "sections")
            if inside or not listed:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} {target} {name}")
    return found


def sources() -> list[tuple[Path, str]]:
    folders = {
        "agentrl": "agentrl",
        "envs": "agentrl.envs",
        "algorithms": "agentrl.algorithms",
        "tools": "agentrl.tools",
    }
    files = []
    for folder, package in folders.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            relative = path.relative_to(ROOT / folder)
            if folder == "agentrl" and relative.parts[0] in ("envs", "algorithms", "tools"):
                continue
            files.append((path, ".".join([package, *relative.with_suffix("").parts])))
    return files


def test_a_package_imports_another_through_its_public_names_only():
    assert [line for path, module in sources() for line in crossings(path, module)] == []


if __name__ == "__main__" and "--write" in sys.argv:
    STORED.write_text(json.dumps({package: public(package) for package in PACKAGES}, indent=1) + "\n")
