"""Every score against the contract of its catalogue: the signals it names, no more and no less, and the same again."""

import asyncio

import numpy as np
import pytest

from agentrl import catalogue
from agentrl.graph import StepGraph
from agentrl.rollout import build_graph
from agentrl.scoring import ScoreStage, resolve_scores
from agentrl.scoring.sections import ScoringConfig
from agentrl.tool import action as tool_action
from agentrl.types import Observation, Task
from tests.contracts.every import locked
from tests.rollout.test_records import episode, step

FREE = [name for name in catalogue.names("score") if name != "judge"]  # the judge needs a server
PARAMS = {"calls": [{"name": "find", "arguments": {"city": "Rome"}}], "documents": ["Rome is old"], "keys": ["Rome"]}
SAID = [
    ["<search>Rome</search>", "<answer>old</answer>"],
    [tool_action.call("find", city="Rome"), tool_action.answer("old")],
    ["", "\x00\ud800 " * 50],
    ["<search></search>"],
]


def graph_and_tasks() -> tuple[StepGraph, dict[str, Task]]:
    records = []
    for copy, said in enumerate(SAID):
        steps = [step(Observation(text=f"Doc 1(Title: a) Rome is old {n}\n"), text) for n, text in enumerate(said)]
        records.append(episode(0, copy, *steps))
    key = records[0].task.key
    return locked(build_graph(records)), {key: Task(key=key, env="toy", params=PARAMS)}


@pytest.mark.parametrize("name", FREE)
def test_a_score_returns_the_signals_it_names_and_the_same_again(name):
    entries = resolve_scores({"name": name})
    graph, tasks = graph_and_tasks()
    found = []
    for _ in range(2):
        stage = ScoreStage(entries, ScoringConfig(), "agent")
        stage.begin(0)
        found.append(asyncio.run(stage.score(graph, tasks)))
        assert not stage.metrics().get("score_answers")
    assert not found[0].faults and set(found[0].columns) == {f"signal/{one}" for one in stage.names}
    for column, values in found[0].columns.items():
        np.testing.assert_array_equal(values, found[1].columns[column])
        assert not np.isinf(values).any() and values.dtype == np.float64
    ends = np.flatnonzero(graph.ending)
    told = np.array([~np.isnan(values[ends]) for values in found[0].columns.values()])
    assert told.any(0).all()  # every chain got some signal


@pytest.mark.parametrize("name", FREE)
def test_a_score_of_another_agent_leaves_the_chains_alone(name):
    graph, tasks = graph_and_tasks()
    stage = ScoreStage(resolve_scores({"name": name, "agent": "other"}), ScoringConfig(), "agent")
    found = asyncio.run(stage.score(graph, tasks))
    assert all(np.isnan(values).all() for values in found.columns.values()) and not found.faults
