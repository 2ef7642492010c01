"""Score stages and chains for tests, in one call."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.graph import StepGraph
from agentrl.rollout import EpisodeRecord, build_graph
from agentrl.scoring import Chain, ChainStep, PaidAnswers, ScoredGraph, ScoreStage, resolve_scores
from agentrl.scoring.entry import MetricMeans
from agentrl.scoring.paid_calls import PaidClient
from agentrl.scoring.sections import ScoringConfig
from agentrl.types import Task
from tests.rollout.test_records import A, B, episode, step

OPINIONS = "tests.toys.opinions"


def stage(*tables: Mapping[str, Any], file: Path | None = None, **scoring: Any) -> ScoreStage:
    return ScoreStage(resolve_scores(list(tables)), ScoringConfig(**scoring), "agent", file)


def two_groups() -> list[EpisodeRecord]:
    """Two copies of task 0, of two steps and of one, and one copy of task 1."""
    return [
        episode(0, 0, step(A, "go"), step(B, "stay", reward=1.0)),
        episode(0, 1, step(A, "wait")),
        episode(1, 0, step(A, "run")),
    ]


def tasks_of(records: Sequence[EpisodeRecord]) -> dict[str, Task]:
    return {record.task.key: record.task for record in records}


def scored(by: ScoreStage, records: Sequence[EpisodeRecord], iteration: int = 0) -> tuple[StepGraph, ScoredGraph]:
    graph = build_graph(records)
    by.begin(iteration)
    return graph, asyncio.run(by.score(graph, tasks_of(records)))


def turn(answer: str = "", observation: str = "", action: str | None = None, **more: Any) -> ChainStep:
    said = answer if action is None else action
    return ChainStep(**{"observation": observation, "answer": answer, "action": said, "signals": {}, **more})


def chain(*turns: ChainStep, success: bool = False, number: int = 0, **params: Any) -> Chain:
    task = Task(key="toy/0", env="toy", params=params)
    return Chain(
        task=task, agent="agent", group=0, number=number, turns=list(turns), rows=range(len(turns)), success=success
    )


def signals_of(table: Mapping[str, Any], *chains: Chain, paid: PaidAnswers | None = None) -> list[dict[str, Any]]:
    """What a score says of chains, which it sees as one group or one by one."""
    (entry,) = resolve_scores(table)
    answers = paid or PaidAnswers(ScoringConfig())
    client = PaidClient({"name": entry.name}, answers, {}, MetricMeans())
    scorer = entry.hooks.make(entry.config)
    groups = [list(chains)] if entry.hooks.scope == "group" else [[one] for one in chains]

    async def run() -> list[dict[str, Any]]:
        return [dict(one) for group in groups for one in await scorer.score(group, client)]

    return asyncio.run(run())
