"""Playing stored rollouts again: the recorded actions through the environment, every word and signal compared."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl import rewards
from agentrl.graph import PLAYED, StepGraph, paths
from agentrl.limits import Limits
from agentrl.pool import EnvFault, Handle, Pool
from agentrl.rollout import joined
from agentrl.types import Status, StepResult, Task

CUT = (Status.TURN_LIMIT, Status.TOKEN_LIMIT, Status.TURN_TOKEN_LIMIT, Status.CALL_LIMIT, Status.TIME_LIMIT)
CLOSE = 1e-9  # rewards and signals this near are the same


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Something a replay gave that is not what was stored."""

    task: str
    turn: int
    what: str
    stored: Any
    found: Any

    def __str__(self) -> str:
        return f"{self.task}, turn {self.turn}: {self.what} was {_short(self.stored)}, is {_short(self.found)}"


def _short(value: Any) -> str:
    words = repr(value) if isinstance(value, str) else str(value)
    return words if len(words) <= 100 else f"{words[:97]}..."


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What came of it.

    Attributes:
        paths, steps: how many were played again.
        skipped: paths the environment had spoiled when they were recorded.
        differences: in the order of the graph.
        signals: name -> (stored, recomputed), each [N] float64 with NaN where not reported.
    """

    paths: int
    steps: int
    skipped: int
    differences: Sequence[Difference]
    signals: Mapping[str, tuple[np.ndarray, np.ndarray]]


def keys(graph: StepGraph) -> dict[int, str]:
    """Episode number -> task key."""
    names = graph.names["episode"]
    return {int(e): names[int(e)].rpartition("#")[0] for e in np.unique(graph.episode)}


async def replay(graph: StepGraph, pool: Pool, tasks: Mapping[str, Task], limits: Limits) -> Replayed:
    """Every root-to-leaf path of played steps, carried out again.

    Args:
        graph: with the words of observations and actions, as runs store it.
        pool: of the environment.
        tasks: by key.
        limits: the run's, which decide whether a last action was carried out.
    """
    walks = [rows for rows in _paths(graph) if (graph.kind[rows] == PLAYED).all()]
    spoiled = [rows for rows in walks if graph.column("ending", "replay")[rows[-1]] == Status.ENV_ERROR]
    kept = [rows for rows in walks if not any(rows is other for other in spoiled)]
    named = keys(graph)
    gate = asyncio.Semaphore(64)
    found: dict[str, np.ndarray] = {name: np.full(len(graph), math.nan) for name in rewards.signals(graph)}

    async def one(rows: np.ndarray) -> list[Difference]:
        async with gate:
            walk = _Walk(graph, rows, tasks[named[int(graph.episode[rows[-1]])]], limits, found)
            handle = pool.acquire()
            broken = True
            try:
                differences = await walk.run(handle)
                broken = False
            except EnvFault as fault:
                differences = [walk.difference(0, "the environment", "sound", str(fault))]
            finally:
                pool.release(handle, broken=broken)
            return differences

    lists = await asyncio.gather(*map(one, kept))
    stored = {name: graph.columns.get(rewards.SIGNAL + name, np.full(len(graph), math.nan)) for name in found}
    return Replayed(
        paths=len(kept),
        steps=len(np.unique(np.concatenate(kept))) if kept else 0,
        skipped=len(spoiled),
        differences=[difference for one_list in lists for difference in one_list],
        signals={name: (stored[name], found[name]) for name in sorted(found)},
    )


def _paths(graph: StepGraph) -> list[np.ndarray]:
    """Rows of each root-to-leaf path, root first."""
    row, leaf = paths(graph)
    return np.split(row, np.flatnonzero(np.diff(leaf)) + 1) if len(row) else []


class _Walk:
    """One path."""

    def __init__(
        self, graph: StepGraph, rows: np.ndarray, task: Task, limits: Limits, found: dict[str, np.ndarray]
    ) -> None:
        self.graph, self.rows, self.task, self.limits, self.found = graph, rows, task, limits, found
        self.reward = rewards.own_reward(graph)  # [N]
        self.ending = Status(int(graph.columns["ending"][rows[-1]]))

    async def run(self, handle: Handle) -> list[Difference]:
        """Carry out the actions and compare; stops at the first observation that differs."""
        graph, differences = self.graph, list[Difference]()
        seen = (await handle.reset(self.task)).text
        for turn, row in enumerate(self.rows):
            expected = graph.texts["observation"][row]
            if seen != expected:
                return [*differences, self.difference(turn, "the observation", expected, seen)]
            last = turn == len(self.rows) - 1
            result: StepResult | None = None
            if not (last and self.never_carried_out()):
                result = await handle.step(graph.names["action"][int(graph.action[row])])
                seen = result.observation.text
            differences += self.compare(turn, int(row), *await self.judged(handle, result, last))
        return differences

    def never_carried_out(self) -> bool:
        """Was the last answer cut off, or over the budget of calls?"""
        if self.ending == Status.CALL_LIMIT:
            return True
        cut = self.limits.cut_turn == "end" and self.ending in (Status.TURN_TOKEN_LIMIT, Status.TOKEN_LIMIT)
        tails = self.graph.tails.get("tail_offsets")
        if not cut or tails is None:
            return cut
        episode = int(self.graph.episode[self.rows[-1]])
        return bool(tails[episode + 1] == tails[episode])

    async def judged(self, handle: Handle, result: StepResult | None, last: bool) -> tuple[float, dict[str, Any]]:
        """Reward and info of a step, the environment's word on a cut episode included."""
        reward, info = (result.reward, dict(result.info)) if result is not None else (0.0, {})
        over = result is not None and (result.terminated or result.truncated)
        if last and not over and self.ending in CUT:
            verdict = await handle.cut()
            if verdict is not None:
                reward, info = reward + verdict.reward, joined(info, verdict.info)
        return reward, info

    def compare(self, turn: int, row: int, reward: float, info: Mapping[str, Any]) -> list[Difference]:
        """Reward and signals of one step; signals are written down."""
        differences = []
        if abs(reward - self.reward[row]) > CLOSE:
            differences.append(self.difference(turn, "the reward", float(self.reward[row]), reward))
        told = info.get("signals", {})
        for name in sorted({*told, *self.found}):
            now = float(told.get(name, math.nan))
            self.found.setdefault(name, np.full(len(self.graph), math.nan))[row] = now
            column = self.graph.columns.get(rewards.SIGNAL + name)
            before = float(column[row]) if column is not None else math.nan
            if not (math.isnan(now) and math.isnan(before)) and not abs(now - before) <= CLOSE:
                differences.append(self.difference(turn, f"the signal {name}", before, now))
        return differences

    def difference(self, turn: int, what: str, stored: Any, found: Any) -> Difference:
        """One of this walk."""
        return Difference(task=self.task.key, turn=turn, what=what, stored=stored, found=found)
