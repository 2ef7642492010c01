"""Step graphs as chat trajectories in OpenAI's format: what was observed and answered, one object per trajectory."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from agentrl.graph.export import KINDS, word
from agentrl.graph.step_graph import DEMO, PLAYED, StepGraph
from agentrl.types import Status


def to_messages(graph: StepGraph) -> Iterator[dict[str, Any]]:
    """One object per episode that was played or demonstrated.

    `messages` holds one user message (the observation) and one assistant message (the answer) per step, from the root
    of the path on; the object of a branch repeats the steps before the branch. `group`, `episode` and `agent` are
    names, `reward` is the episode's score, `status` says how the episode ended, `kind` is played or demo.
    `agentrl.graph.from_messages` and `agentrl credit --steps` read this form.

    System messages and the text of a chat template are left out: a graph holds them only as tokens, not as texts.

    Raises:
        ValueError: the graph has no texts of observations or answers.
    """
    for name in ("observation", "answer"):
        if name not in graph.texts:
            raise ValueError(f"the steps have no texts {name!r}: export graphs that a run of agentrl has stored")
    score, parent = graph.score, graph.parent.tolist()
    for last in np.flatnonzero(graph.last & np.isin(graph.kind, (PLAYED, DEMO))).tolist():
        rows, row = [], last
        while row >= 0:
            rows.append(row)
            row = parent[row]
        messages = [message for row in reversed(rows) for message in _turn(graph, row)]
        yield {
            "messages": messages,
            "group": word(graph, "group", int(graph.group[last])),
            "episode": word(graph, "episode", int(graph.episode[last])),
            "agent": word(graph, "agent", int(graph.agent[last])),
            "reward": float(score[last]),
            "status": Status(int(graph.ending[last])).name.lower(),
            "kind": KINDS[int(graph.kind[last])],
        }


def _turn(graph: StepGraph, row: int) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": graph.texts["observation"][row]},
        {"role": "assistant", "content": graph.texts["answer"][row]},
    ]
