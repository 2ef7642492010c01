"""Agents that a shared step called are in the graph once, whoever the step ends up with."""

import asyncio
from collections import Counter

import numpy as np
import pytest

from agentrl.config import resolve
from agentrl.env import tasks_of
from agentrl.graph import PLAYED
from agentrl.rollout import Draw, Expansion, build_graph
from tests.rollout.playing import entry
from tests.rollout.test_agent_calls import BOSS, crew


@pytest.mark.parametrize(
    "options",
    [
        {"name": "tree", "trees": 4, "nodes": 3, "leaves": 2},
        {"name": "tree", "trees": 2, "nodes": 2, "leaves": 3},
        {"name": "candidates", "candidates": 3},
    ],
)
def test_each_walk_has_its_walker(options):
    boss = crew(["walk", "walk", "walk", "done"])
    batch = Expansion(boss, [Draw(task=task) for task in tasks_of(entry(BOSS))[:1]])
    found = resolve("rollout", options)

    async def run():
        return await found.hooks.rollout(found.config, batch, 2)

    records = asyncio.run(run())
    for one in boss.agents.values():
        one.pool.close()
    graph = build_graph(records)
    agents = graph.names["agent"]
    walks = [
        row
        for row in range(len(graph))
        if agents[graph.agent[row]] == "boss" and graph.names["action"][graph.action[row]] == "walk"
    ]
    callers = Counter(graph.caller[(graph.caller >= 0) & graph.first].tolist())
    assert callers == dict.fromkeys(walks, 1)
    called = graph.caller >= 0
    assert (graph.kind[called] == graph.kind[graph.caller[called]]).all()
    leaves = np.unique(graph.episode[(graph.kind == PLAYED) & ~called])
    assert len(leaves) == found.hooks.leaves(found.config, 2)
