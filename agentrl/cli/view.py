"""`agentrl view GRAPH.safetensors|REPORT.json [--group N | --episode N]`: stored rollouts; transcripts of a report.

Without an option it prints one line per episode. With --group or --episode it prints the states and steps of a group or
an episode in node-link form, `nodes` and `edges`, which D3 and networkx.node_link_graph read; states that episodes
share are one node. Of the report of an evaluation it prints the episodes (--failed, --json), and with --episode all
that was said in one.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from agentrl.cli import _view_report
from agentrl.cli._parser import Parser, seed
from agentrl.graph import KINDS, StepGraph, read_graph, to_json, word
from agentrl.types import Status


def main(words: Sequence[str]) -> int:
    """See the module."""
    if _view_report.is_report(words):
        return _view_report.main(words)
    parser = Parser("agentrl view", __doc__)
    parser.add_argument("graph", type=Path, help="such as runs/NAME/graphs/000000.safetensors")
    parser.add_argument("--group", type=seed, help="copies of one task")
    parser.add_argument("--episode", type=seed)
    arguments = parser.parse_args(words)
    graph = read_graph(arguments.graph)
    as_graph = arguments.group is not None or arguments.episode is not None
    print(to_json(graph, group=arguments.group, episode=arguments.episode) if as_graph else table(graph))
    return 0


def table(graph: StepGraph) -> str:
    """One line per episode."""
    credited = graph.has("advantage")
    head = f"{'group':>5} {'episode':>7} {'kind':9} {'steps':>5} {'score':>7} {'ending':16} "
    lines = [head + ("advantage task" if credited else "task")]
    scores, several = graph.score, len(np.unique(graph.agent)) > 1  # [N]
    for episode in np.unique(graph.episode):
        rows = np.flatnonzero(graph.episode == episode)
        first, last = rows[0], rows[-1]
        group = int(graph.group[first])
        ending = Status(int(graph.ending[last])).name.lower()
        mean = f"{average(graph.columns['advantage'][rows])} " if credited else ""
        kind = KINDS[int(graph.kind[last])]
        who = f" ({word(graph, 'agent', int(graph.agent[first]))})" if several else ""
        numbers = f"{group:5} {episode:7} {kind:9} {len(rows):5} {scores[first]:7.3f}"
        lines.append(f"{numbers} {ending:16} {mean}{word(graph, 'group', group)}{who}")
    return "\n".join(lines)


def average(advantage: np.ndarray) -> str:
    """Mean advantage of the steps with credit; a dash if there are none."""
    credited = advantage[~np.isnan(advantage)]
    return f"{credited.mean():9.3f}" if len(credited) else f"{'-':>9}"
