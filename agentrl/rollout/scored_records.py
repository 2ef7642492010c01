"""Adds the signals of a recipe's scores to the records of a batch.

A fault of a score counts like a fault of the environment.
"""

from collections.abc import Sequence

import numpy as np

from agentrl.credit import SIGNAL
from agentrl.rollout.faults import stop_on_faults
from agentrl.rollout.record_graph import build_graph, rows_of_graph
from agentrl.rollout.records import EpisodeRecord
from agentrl.scoring import ScoreStage
from agentrl.types import Status


async def score_records(stage: ScoreStage, records: Sequence[EpisodeRecord], fault_share: float) -> None:
    """Add the signals of a recipe's scores to the steps of records that have ended.

    A chain that cannot be scored ends as `env_error` with the score's fault, so that no statistic counts it.

    Args:
        stage: computes the scores.
        records: the records of whole groups.
        fault_share: see `Limits.fault_share`.

    Raises:
        BudgetSpent: a limit of [scoring] is reached, and the recipe says to stop.
        TooManyFaults: more than `fault_share` of the chains have no score or were ended by a fault of the environment.
        ValueError: the environment and a score return signals of the same name.
    """
    graph = build_graph(records)
    both = [name for name in stage.names if graph.has(SIGNAL + name)]
    if both:
        raise ValueError(
            f"the environment reports the signal {both[0]!r}, and a score returns a signal of the same name: rename "
            "the score's signal with its option signal"
        )
    scored = await stage.score(graph, {record.task.key: record.task for record in records})
    rows = rows_of_graph(records)
    for column, values in scored.columns.items():
        name = column.removeprefix(SIGNAL)
        for row in np.flatnonzero(~np.isnan(values)).tolist():
            step, _ = rows[row]
            step.info = {**step.info, "signals": {**step.info.get("signals", {}), name: float(values[row])}}
    for row, fault in scored.faults.items():
        _, chain = rows[row]
        chain.ending, chain.fault = Status.ENV_ERROR, fault
    stop_on_faults(records, fault_share)
