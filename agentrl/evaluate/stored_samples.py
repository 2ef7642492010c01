"""Reads samples of tasks from the step graphs of a run, or from the report and episodes of an evaluation."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agentrl.credit import ends, totals
from agentrl.evaluate.episode_files import folder_of, read_episode, stored_episodes
from agentrl.evaluate.evaluation import LOST
from agentrl.evaluate.samples import Sample
from agentrl.graph import StepGraph


def samples_of_graph(graph: StepGraph, name: str = "") -> list[Sample]:
    """The scored episodes of a graph. An episode is here a path from a root to a last step; `actions` counts the
    steps of this path.

    Args:
        graph: a step graph as a run stores it.
        name: prefix of the task keys. With different prefixes, equal tasks of two graphs count as different tasks,
            because different policies played them.
    """
    at = ends(graph)
    rows = at.row[(at.weight > 0) & (graph.caller[at.row] < 0)]  # [L'] the last rows of the scored episodes
    chosen = np.isin(at.row, rows)  # [L] is the path a scored episode?
    sampled = np.zeros(len(graph))  # [N]
    if graph.tokens is not None:
        sampled = np.diff(np.append(0, np.cumsum(graph.tokens.sampled))[graph.tokens.offsets])
    tokens, steps = totals(graph, sampled, at)[chosen], totals(graph, np.ones(len(graph)), at)[chosen]  # [L'] each
    succeeded = graph.succeeded  # [N]
    return [
        Sample(
            task=name + str(graph.names["group"][int(graph.group[row])]),
            success=bool(succeeded[row]),
            answer=_plain(str(graph.names["action"][int(graph.action[row])])),
            tokens=int(tokens[i]),
            actions=int(steps[i]),
        )
        for i, row in enumerate(rows.tolist())
    ]


def samples_of_report(report: Mapping[str, Any], path: Path) -> list[Sample]:
    """The scored episodes of a report; the answers come from the folder of stored episodes, if there is one.

    Raises:
        ValueError: an episode's file is damaged.
    """
    answers = _answers(folder_of(path))
    return [
        Sample(
            task=one["task"],
            success=one["success"],
            answer=answers.get((one["task"], int(one.get("sample", 0))), ""),
            tokens=int(one.get("tokens", 0)),
            actions=int(one.get("calls", 0) or one.get("steps", 0)),
            price=float(one.get("usage", {}).get("cost", math.nan)),
        )
        for one in report["outcomes"]
        if one["ending"] != LOST
    ]


def _answers(folder: Path) -> dict[tuple[str, int], str]:
    """(task, sample) -> the last action of the agent that the task was given to."""
    found: dict[tuple[str, int], str] = {}
    for path in stored_episodes(folder) if folder.is_dir() else ():
        episode = read_episode(path)
        last = [one.answer for one in samples_of_graph(episode.graph)] if len(episode.graph) else []
        if last:
            found[episode.outcome.task, episode.outcome.sample] = last[-1]
    return found


def _plain(text: str) -> str:
    """The text in lower case and with single blanks, so that small differences in writing do not count."""
    return " ".join(text.lower().split())
