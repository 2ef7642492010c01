"""Catalogue `agentrl.envs`: the name of a file is the name of its environment in recipes (see `agentrl.catalogue`)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

if __name__ != "agentrl.envs":
    raise ImportError("import agentrl.envs, not the bare folder name")

# Further names -> the environment and the options that the name stands for.
ALIASES: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "alfworld-gen": ("alfworld", {"source": "generated"}),
        "webshop-gen": ("webshop", {"data": ""}),
        "search-gen": ("search_qa", {"data": ""}),
    }
)
