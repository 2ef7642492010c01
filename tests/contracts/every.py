"""Entries of the catalogues with the options that those without usable defaults need."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from agentrl import catalogue
from agentrl.config import Entry, resolve
from agentrl.graph import StepGraph

# Only entries that refuse an empty table of options; `test_entries` checks that each of them does.
NEEDED: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("tools", "mcp"): {"url": "http://127.0.0.1:9"},
    ("tools", "sandbox_fusion"): {"url": "http://127.0.0.1:9"},
    ("reward", "group_normalised"): {"weights": {"right": 1.0, "short": 0.5}},
    ("reward", "weighted_sum"): {"weights": {"right": 1.0, "short": 0.5}},
    ("score", "judge"): {"model": "openai:some-model"},
    ("engine", "openai"): {"model": "some-model"},
    ("engine", "vllm"): {"urls": ["http://127.0.0.1:9"]},
}


def entry(kind: str, name: str, **options: Any) -> Entry[Any]:
    """The entry with the options it needs, and others."""
    return resolve(kind, {"name": name, **NEEDED.get((kind, name), {}), **options})


def pairs() -> list[tuple[str, str]]:
    """Every entry of every catalogue, as (kind, name)."""
    return [(kind, name) for kind in catalogue.KINDS for name in catalogue.names(kind)]


def locked(graph: StepGraph) -> StepGraph:
    """The graph, whose arrays refuse to be written to: what must be pure then raises if it is not."""
    arrays: list[np.ndarray] = [*graph.columns.values(), *graph.tails.values()]
    if graph.tokens is not None:
        table = graph.tokens
        arrays += [getattr(table, one.name) for one in fields(table) if one.name != "columns"]
        arrays += list(table.columns.values())
    freeze(arrays)
    return graph


def freeze(arrays: Iterable[Any]) -> None:
    """Let NumPy arrays refuse to be written to."""
    for array in arrays:
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
