"""Catalogue `agentrl.envs`: a file's name is its name in configurations (see `agentrl.catalogue`)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

if __name__ != "agentrl.envs":
    raise ImportError("import agentrl.envs, not the bare folder name")

# Further names: an environment with options that the name stands for. Results are reported under them.
ALIASES: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "alfworld-gen": ("alfworld", {"source": "generated"}),
        "webshop-gen": ("webshop", {"data": ""}),
        "search-gen": ("search_qa", {"data": ""}),
    }
)
