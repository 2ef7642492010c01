"""Reads the played chains and their texts from a step graph. Scores of running and of stored runs read these chains."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl.credit import SIGNAL, ends
from agentrl.graph import PLAYED, StepGraph, paths
from agentrl.types import Status, Task


@dataclass(frozen=True, kw_only=True)
class ChainStep:
    """One step of a chain.

    Attributes:
        observation: what the agent saw before it answered.
        answer: the whole answer of the model.
        action: the action in the answer, as the environment spells it.
        reward: the reward that the environment paid.
        status: what happened in the step.
        valid: was the answer in the right format?
        tokens: number of sampled tokens; 0 for policies without a tokenizer.
        signals: the signals that the environment reported, by name.
    """

    observation: str
    answer: str
    action: str
    reward: float = 0.0
    status: Status = Status.OK
    valid: bool = True
    tokens: int = 0
    signals: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Chain:
    """One path of the graph from its root to its last step.

    Attributes:
        task: the task; its `params` hold what the environment knows about the right answer.
        agent: name of the agent that played the chain.
        group: id of the group; the copies of one task have the same id.
        number: index of the chain in the list that `chains_of` returns for its graph.
        turns: the steps of the chain, in time order.
        rows: [T] the rows of the steps in the graph.
        success: did the episode succeed (`StepGraph.succeeded`)?
    """

    task: Task
    agent: str
    group: int
    number: int
    turns: Sequence[ChainStep]
    rows: np.ndarray
    success: bool

    def content(self) -> dict[str, Any]:
        """Task, agent and texts as JSON values.

        Scorers put them into the key of a question, so that chains with equal texts share one paid answer.
        """
        said = [[turn.observation, turn.answer, turn.action] for turn in self.turns]
        return {"task": self.task.key, "agent": self.agent, "turns": said}


def chains_of(graph: StepGraph, tasks: Mapping[str, Task]) -> list[Chain]:
    """The played chains of a graph, one per path, without the failed chains (`StepGraph.failed`).

    A chain has failed if a fault ended it (ENV_ERROR). A chain of a called agent has also failed if the chain of its
    caller, or the main chain of its rollout, has failed.

    Args:
        graph: a graph with the texts `observation` and `answer`.
        tasks: the tasks by key; the keys are the names of the graph's groups.

    Raises:
        ValueError: the graph has no texts.
    """
    if not len(graph):
        return []
    if not {"observation", "answer"} <= set(graph.texts):
        raise ValueError("these steps have no texts of observations and answers, so there is nothing to score")
    row, leaf = paths(graph)
    walks = np.split(row, np.flatnonzero(np.diff(leaf)) + 1) if len(row) else []
    failed, succeeded, tokens = graph.failed(), graph.succeeded, _sampled(graph)  # [N] each
    last = {*ends(graph).row.tolist()}
    found: list[Chain] = []
    for rows in walks:
        end = int(rows[-1])
        if end in last and graph.kind[end] == PLAYED and not failed[end]:
            found.append(
                Chain(
                    task=tasks[graph.names["group"][int(graph.group[end])]],
                    agent=str(graph.names["agent"][int(graph.agent[end])]),
                    group=int(graph.group[end]),
                    number=len(found),
                    turns=[_turn(graph, int(n), int(tokens[n])) for n in rows],
                    rows=rows,
                    success=bool(succeeded[end]),
                )
            )
    return found


def _turn(graph: StepGraph, row: int, tokens: int) -> ChainStep:
    reported = {name: float(x[row]) for name, x in graph.columns.items() if name.startswith(SIGNAL)}
    return ChainStep(
        observation=str(graph.texts["observation"][row]),
        answer=str(graph.texts["answer"][row]),
        action=str(graph.names["action"][int(graph.action[row])]),
        reward=float(graph.columns["env_reward" if graph.has("env_reward") else "reward"][row]),
        status=Status(int(graph.status[row])),
        valid=bool(graph.valid[row]),
        tokens=tokens,
        signals={name.removeprefix(SIGNAL): x for name, x in reported.items() if not np.isnan(x)},
    )


def _sampled(graph: StepGraph) -> np.ndarray:
    """[N] number of sampled tokens of each step."""
    if graph.tokens is None:
        return np.zeros(len(graph), np.int64)
    before = np.append(0, np.cumsum(graph.tokens.sampled))  # [S+1]
    own: np.ndarray = np.diff(before[graph.tokens.offsets])  # [N]
    return own
