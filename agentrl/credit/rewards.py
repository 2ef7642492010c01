"""From an environment's named signals to the reward of each step, before credit.

An environment reports signals in a step's `info["signals"]`, a mapping of names to numbers; they are stored with the
step graph as columns `signal/NAME` [N] float64, NaN on steps that do not report one. The section `[reward]` of a
recipe (or `[[reward]]`, several of them) names entries of `algorithms/reward/`; a step's reward is then the sum of what
they give it, and since signals stay in the graph, it can be computed anew with other weights. Without the section the
reward is the environment's.

A catalogue file offers a frozen pydantic `Config` and, pure and in NumPy,

    def reward(graph: StepGraph, config: Config) -> np.ndarray  # [N] float64

Letters: N steps, L ends (root-to-leaf paths).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from agentrl.catalogue import CatalogueFile, hook, nearest
from agentrl.config import Entry, resolve
from agentrl.graph import PLAYED, StepGraph, tree_down

SIGNAL, OWN = "signal/", "env_reward"  # prefix of signal columns; what the environment itself paid


@dataclass(frozen=True, kw_only=True)
class RewardTransform(CatalogueFile):
    """The file of a reward transform; see the module."""

    KIND: ClassVar[str] = "reward"

    reward: Callable[[StepGraph, Any], np.ndarray] = hook(help="(graph, config) -> [N] reward of each step")


def resolve_rewards(section: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[Entry[RewardTransform], ...]:
    """The catalogue entries of a `[reward]` table, of several, or of none.

    Raises:
        ValueError: an entry or an option is unknown.
    """
    if isinstance(section, Mapping):
        return (resolve(RewardTransform, section),) if section else ()
    return tuple(resolve(RewardTransform, table, f"reward.{i}") for i, table in enumerate(section))


def rescore(graph: StepGraph, entries: Sequence[Entry[RewardTransform]]) -> StepGraph:
    """The graph with the reward that these transforms give; pure, and the same however often it is done.

    What the environment paid is kept as `env_reward` [N], and its score as `env_score` [N], by which success is judged.
    No entries give the environment's reward back.

    Raises:
        ValueError: a signal that is asked for does not exist, or a reward is not finite.
    """
    if not entries and not graph.has(OWN):
        return graph
    own = own_reward(graph)  # [N]
    total = np.sum([entry.hooks.reward(graph, entry.config) for entry in entries], axis=0) if entries else own  # [N]
    if not np.isfinite(total).all():
        row = int(np.argmin(np.isfinite(total)))
        raise ValueError(f"the reward of episode {graph.episode[row]}, turn {graph.turn[row]} would be {total[row]}")
    success = graph.columns["env_score"] if graph.has("env_score") else graph.score  # [N]
    kept = {name: x for name, x in graph.columns.items() if name != "score"}
    return StepGraph(
        columns={**kept, "reward": total, OWN: own, "env_score": success},
        tokens=graph.tokens,
        names=graph.names,
        texts=graph.texts,
        tails=graph.tails,
    )


def with_signals(graph: StepGraph, names: Iterable[str]) -> StepGraph:
    """The graph with a column for each of these signals, NaN throughout where no step reports one."""
    absent = [SIGNAL + name for name in names if not graph.has(SIGNAL + name)]
    return graph.with_columns(**{name: np.full(len(graph), np.nan) for name in absent}) if absent else graph


def own_reward(graph: StepGraph) -> np.ndarray:
    """[N] what the environment paid."""
    return graph.columns[OWN] if graph.has(OWN) else graph.reward


def signal_names(graph: StepGraph) -> list[str]:
    """Names of the signals that the steps report."""
    return sorted(name.removeprefix(SIGNAL) for name in graph.columns if name.startswith(SIGNAL))


def signal(graph: StepGraph, name: str) -> np.ndarray:
    """[N] a signal, NaN where a step does not report it; `env_reward` is the environment's own reward.

    Raises:
        ValueError: no step reports it.
    """
    if name == OWN:
        return own_reward(graph)
    if not graph.has(SIGNAL + name):
        known = [OWN, *signal_names(graph)]
        raise ValueError(f"reward: no step reports the signal {name!r}{nearest(name, known)}")
    return graph.columns[SIGNAL + name]


def filled(x: np.ndarray) -> np.ndarray:
    """[N] a signal that adds nothing where it is not reported."""
    return np.where(np.isnan(x), 0.0, x)


class Ends(NamedTuple):
    """Where paths end, [L] each: the row, its group (copies of a task, agent by agent), how often the path counts in
    statistics (its row's weight; 0 if it was not played or an environment error ended it)."""

    row: np.ndarray
    group: np.ndarray
    weight: np.ndarray


def ends(graph: StepGraph) -> Ends:
    """The last rows of all paths: those that no row of their kind continues."""
    inner = np.flatnonzero(graph.parent >= 0)
    alike = inner[graph.kind[inner] == graph.kind[graph.parent[inner]]]
    row = np.setdiff1d(np.arange(len(graph)), graph.parent[alike])  # [L]
    counted = (graph.kind == PLAYED) & ~graph.failed()  # [N]
    return Ends(row, graph.peers[row], (graph.weight * counted)[row])


def totals(graph: StepGraph, x: np.ndarray, at: Ends) -> np.ndarray:
    """[L] sum of x [N] over each path, NaN counting as 0."""
    total: np.ndarray = tree_down(filled(x), graph.parent)[at.row]
    return total


def on_ends(graph: StepGraph, x: np.ndarray, at: Ends) -> np.ndarray:
    """[N] x [L] on the ends of the paths, 0 elsewhere."""
    out = np.zeros(len(graph))
    out[at.row] = x
    return out


def reward_metrics(graph: StepGraph) -> dict[str, float]:
    """Mean of each signal over scored paths (`signal_NAME`), and of the reward where transforms made it."""
    names = signal_names(graph)
    if not len(graph) or not (names or graph.has(OWN)):
        return {}
    at = ends(graph)
    share = at.weight / max(float(at.weight.sum()), 1e-300)  # [L]
    found = {f"signal_{name}": signal(graph, name) for name in names}
    found |= {"transformed_reward": graph.reward} if graph.has(OWN) else {}
    return {name: float(share @ totals(graph, x, at)) for name, x in found.items()}
