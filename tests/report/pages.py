"""Steps for the credit page: a household world small enough to count by hand, and other shapes of rollouts."""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from agentrl import catalogue
from agentrl.config import resolve
from agentrl.credit import Credit, CreditMethod, assign
from agentrl.exchange import steps_graph
from agentrl.graph import StepGraph
from agentrl.report import CreditData, credit_data

CHAINS = {
    "won": ["hall", "kitchen", "fridge", "table"],
    "detour": ["hall", "bedroom", "hall", "kitchen", "fridge", "table"],
    "lost": ["hall", "bedroom", "closet", "bedroom", "gave up"],
}


def household() -> list[dict[str, Any]]:
    """Three chains of one task; "won" and "detour" earn 1. "hall" is left 4 times, "bedroom" 3, "kitchen" 2."""
    rows = []
    for episode, states in CHAINS.items():
        for turn, (state, after) in enumerate(pairwise(states)):
            last = turn == len(states) - 2
            rows.append(
                {
                    "group": "put an apple on the table",
                    "episode": episode,
                    "turn": turn,
                    "state": state,
                    "action": f"go {after}",
                    "next_state": after,
                    "reward": float(last and after == "table"),
                    "terminated": last and after == "table",
                    "truncated": last and after != "table",
                    "valid": after != "closet",
                }
            )
    return rows


def graph_of(rows: list[dict[str, Any]]) -> StepGraph:
    return steps_graph([json.dumps(row) for row in rows])


def credits_of(graph: StepGraph, *methods: str) -> Mapping[str, Credit]:
    return {name: assign(resolve(CreditMethod, {"name": name}), graph) for name in methods}


def data_of(graph: StepGraph, *methods: str, **options: Any) -> CreditData:
    settings = {name: catalogue.load(CreditMethod, name).config().model_dump() for name in methods}
    return credit_data(graph, credits_of(graph, *methods), settings, title="a toy", **options)
