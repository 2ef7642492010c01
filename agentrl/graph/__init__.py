"""The step graph: columns, tokens, paths, segments, storage and exchange."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrl.graph.converters import from_messages, from_verl
    from agentrl.graph.export import KINDS, to_json, to_networkx, word
    from agentrl.graph.jsonl import read_steps, steps_graph
    from agentrl.graph.merged_values import graph_values
    from agentrl.graph.root_paths import Paths, expand, forked, paths, select
    from agentrl.graph.segments import (
        Singleton,
        Std,
        broadcast,
        context_key,
        count,
        depth,
        following,
        gae,
        group_max,
        group_norm,
        keys,
        leave_one_out,
        levels,
        mean,
        moments,
        scan,
        tree_down,
        tree_up,
        whiten,
    )
    from agentrl.graph.similarity import first_fit, similar_states
    from agentrl.graph.sources import read_any
    from agentrl.graph.step_graph import CANDIDATE, COLUMNS, PLAYED, PROBE, StepGraph, success_of
    from agentrl.graph.store import read_graph, write_graph
    from agentrl.graph.tokens import (
        Tokens,
        append_rows,
        decisions,
        first_sampled,
        path_lengths,
        prompt_lengths,
        token_rows,
    )

__all__ = [
    "CANDIDATE",
    "COLUMNS",
    "KINDS",
    "PLAYED",
    "PROBE",
    "Paths",
    "Singleton",
    "Std",
    "StepGraph",
    "Tokens",
    "append_rows",
    "broadcast",
    "context_key",
    "count",
    "decisions",
    "depth",
    "expand",
    "first_fit",
    "first_sampled",
    "following",
    "forked",
    "from_messages",
    "from_verl",
    "gae",
    "graph_values",
    "group_max",
    "group_norm",
    "keys",
    "leave_one_out",
    "levels",
    "mean",
    "moments",
    "path_lengths",
    "paths",
    "prompt_lengths",
    "read_any",
    "read_graph",
    "read_steps",
    "scan",
    "select",
    "similar_states",
    "steps_graph",
    "success_of",
    "to_json",
    "to_networkx",
    "token_rows",
    "tree_down",
    "tree_up",
    "whiten",
    "word",
    "write_graph",
]

_HOME = {
    "CANDIDATE": "agentrl.graph.step_graph",
    "COLUMNS": "agentrl.graph.step_graph",
    "KINDS": "agentrl.graph.export",
    "PLAYED": "agentrl.graph.step_graph",
    "PROBE": "agentrl.graph.step_graph",
    "Paths": "agentrl.graph.root_paths",
    "Singleton": "agentrl.graph.segments",
    "Std": "agentrl.graph.segments",
    "StepGraph": "agentrl.graph.step_graph",
    "Tokens": "agentrl.graph.tokens",
    "append_rows": "agentrl.graph.tokens",
    "broadcast": "agentrl.graph.segments",
    "context_key": "agentrl.graph.segments",
    "count": "agentrl.graph.segments",
    "decisions": "agentrl.graph.tokens",
    "depth": "agentrl.graph.segments",
    "expand": "agentrl.graph.root_paths",
    "first_fit": "agentrl.graph.similarity",
    "first_sampled": "agentrl.graph.tokens",
    "following": "agentrl.graph.segments",
    "forked": "agentrl.graph.root_paths",
    "from_messages": "agentrl.graph.converters",
    "from_verl": "agentrl.graph.converters",
    "gae": "agentrl.graph.segments",
    "graph_values": "agentrl.graph.merged_values",
    "group_max": "agentrl.graph.segments",
    "group_norm": "agentrl.graph.segments",
    "keys": "agentrl.graph.segments",
    "leave_one_out": "agentrl.graph.segments",
    "levels": "agentrl.graph.segments",
    "mean": "agentrl.graph.segments",
    "moments": "agentrl.graph.segments",
    "path_lengths": "agentrl.graph.tokens",
    "paths": "agentrl.graph.root_paths",
    "prompt_lengths": "agentrl.graph.tokens",
    "read_any": "agentrl.graph.sources",
    "read_graph": "agentrl.graph.store",
    "read_steps": "agentrl.graph.jsonl",
    "scan": "agentrl.graph.segments",
    "select": "agentrl.graph.root_paths",
    "similar_states": "agentrl.graph.similarity",
    "steps_graph": "agentrl.graph.jsonl",
    "success_of": "agentrl.graph.step_graph",
    "to_json": "agentrl.graph.export",
    "to_networkx": "agentrl.graph.export",
    "token_rows": "agentrl.graph.tokens",
    "tree_down": "agentrl.graph.segments",
    "tree_up": "agentrl.graph.segments",
    "whiten": "agentrl.graph.segments",
    "word": "agentrl.graph.export",
    "write_graph": "agentrl.graph.store",
}


def __getattr__(name: str) -> Any:
    """A public name, its module imported when it is first asked for."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
