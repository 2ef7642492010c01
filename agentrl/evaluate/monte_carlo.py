"""Monte Carlo estimates of a stored step's value, from continuations."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agentrl.types import Status

if TYPE_CHECKING:
    from agentrl.evaluate.continuations import Place
    from agentrl.graph import StepGraph
    from agentrl.rollout import EpisodeRecord


def branch_summary(
    place: "Place", records: "Sequence[EpisodeRecord]", returns: np.ndarray, path: Path
) -> dict[str, Any]:
    """The object that `agentrl branch --json` prints.

    Args:
        place: the step.
        records: the new continuations from the step.
        returns: [n] returns of the records that no fault has ended.
        path: file of the graph.
    """
    graph, row = place.graph, place.row
    known = {name: float(graph.columns[name][row]) for name in ("advantage", "value") if graph.has(name)}
    error = float(returns.std(ddof=1) / math.sqrt(len(returns))) if len(returns) > 1 else None
    return {
        "graph": str(path),
        "task": place.task_key,
        "episode": int(graph.episode[place.after[-1]]),
        "turn": int(graph.turn[row]),
        "observation": graph.texts["observation"][row],
        "action": graph.names["action"][graph.action[row]],
        "return": float(graph.reward[place.after].sum()),
        **{name: None if math.isnan(x) else x for name, x in known.items()},
        "mc_value": float(returns.mean()) if len(returns) else None,
        "mc_error": error,
        "mc_advantage": mc_advantage(graph, place),
        "replayed_actions": sum(record.replayed for record in records),
        "branches": [
            {
                "action": record.own[0].action if record.own else None,
                "return": sum(step.reward for step in record.own),
                "steps": len(record.own),
                "success": record.success,
                "ending": record.ending.name.lower(),
                **({"fault": record.fault} if record.ending == Status.ENV_ERROR else {}),
            }
            for record in records
        ],
    }


def mc_advantage(graph: "StepGraph", place: "Place") -> float | None:
    """r + V(next) - V of the step, with the Monte Carlo values V of its state and of the next state.

    V(next) is 0 after a terminated step. The result is None if one of the two states has no Monte Carlo value.
    """
    row, following = place.row, place.after[1:2]
    values = graph.columns.get("mc_value")
    if values is None:
        return None
    after = float(values[following[0]]) if following else 0.0 if graph.terminated[row] else math.nan
    gain = float(graph.reward[row]) + after - float(values[row])
    return None if math.isnan(gain) else gain
