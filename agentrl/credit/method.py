"""What a credit method is, and how the core applies one to a stored graph.

A catalogue file in `algorithms/credit/` offers a frozen pydantic `Config` (an `Options`) and

    def credit(graph: StepGraph, config: Config) -> Credit

pure, NumPy only. It may also say `NEEDS` (columns every step must have), `READS` (columns that may be absent on some
steps), `PAPER` (one line for listings) and `ON`. Methods see chains: on a graph with branch points they get its
root-to-leaf paths and what they return is pooled; a method written for nodes says `ON = "nodes"`, one that gives credit
per token and therefore has no pooled form says `ON = "tokens"` (or, where an option decides, `Options.per_token`).
Methods see the steps that were played; one that compares actions sampled from one state says `CANDIDATES = True` and,
where a rollout stored some that were not executed, sees every row once, those of `kind` CANDIDATE among them. `CALLS =
True` says that a run needs agents that are called (`agentrl.settings.requirements`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType, ModuleType
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, model_validator

from agentrl.graph.segments import keys, moments
from agentrl.graph.step_graph import CANDIDATE, PLAYED, Paths, StepGraph, Tokens, paths


class Options(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Base of a method's `Config`: `preset=official` takes the released code's choices, an explicit option
    wins."""

    OFFICIAL: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    preset: Literal["paper", "official"] = "paper"

    @property
    def per_token(self) -> bool:
        """Do these options ask for credit inside steps, where there are tokens? Such credit has no pooled form."""
        return False

    @model_validator(mode="before")
    @classmethod
    def _fill_preset(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("preset") == "official":
            return {**cls.OFFICIAL, **given}
        return given


class PathCredit(NamedTuple):
    """Credit of a branched graph before its paths are pooled, [P rows] each beside `on`."""

    on: Paths
    positive: np.ndarray
    negative: np.ndarray
    weight: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Credit:
    """What each step earned.

    The token loss of a step is positive * l(+1) + negative * l(-1) + weight * (terms without an advantage);
    on a chain positive = max(A, 0), negative = max(-A, 0), weight = 1.

    Attributes:
        advantage: [N] float64, positive - negative at unit weights: the number to print.
        positive, negative: [N] float64 >= 0, sums over the paths through a step.
        weight: [N] float64, number of paths through a step (times how often the method uses each).
        assigned: [N] bool; False means "no credit given", which is not an advantage of 0.
        token_advantage: [S] float64 over the graph's token table, or None: then every token takes its step's.
        returns: [N] float64 value targets, or None.
        parts: named arrays [N] (those named `token_...` [S]) that `agentrl credit` prints beside the
        advantage. metrics: scalars for the log.
        on_paths: on a branched graph what each path gave to its copy of a step, for losses over whole paths; None
            where credit is not given path by path.
    """

    advantage: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    weight: np.ndarray
    assigned: np.ndarray
    token_advantage: np.ndarray | None = None
    returns: np.ndarray | None = None
    parts: Mapping[str, np.ndarray] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    on_paths: PathCredit | None = None

    @classmethod
    def of(
        cls,
        advantage: np.ndarray,
        *,
        assigned: np.ndarray | None = None,
        weight: np.ndarray | None = None,
        token_advantage: np.ndarray | None = None,
        returns: np.ndarray | None = None,
        parts: Mapping[str, np.ndarray] | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> "Credit":
        """Credit of rows that lie on one path each; `weight` [N] is how often the method trains a row
        (default 1)."""
        given = np.ones(len(advantage), bool) if assigned is None else assigned  # [N]
        a = np.where(given, advantage, 0.0)  # [N]
        w = given * (1.0 if weight is None else weight)  # [N]
        return cls(
            advantage=a,
            positive=w * np.maximum(a, 0.0),
            negative=w * np.maximum(-a, 0.0),
            weight=w,
            assigned=given,
            token_advantage=token_advantage,
            returns=returns,
            parts=parts or {},
            metrics=metrics or {},
        )


def assign(method: ModuleType, graph: StepGraph, config: Any) -> Credit:
    """Run a credit method on what it may see, and put the result back on the graph's rows.

    Rows that the method does not see, and rollouts that an environment error ended, are not assigned. On a branched
    graph a method for chains sees the expanded paths; a shared row's positive and negative parts are sums
    over its paths. The graph's `weight` enters statistics here and the loss in `agentrl.trainer.update`.

    Raises:
        ValueError: a column the method needs is missing, or absent on some step.
    """
    kinds = (PLAYED, CANDIDATE) if getattr(method, "CANDIDATES", False) else (PLAYED,)
    seen = np.flatnonzero(np.isin(graph.kind, kinds) & ~graph.failed())
    part = graph if len(seen) == len(graph) else select(graph, seen)
    require(method, part)
    on = getattr(method, "ON", "chains")
    if on == "nodes" or not forked(part) or (part.kind == CANDIDATE).any():
        result: Credit = method.credit(part, config)
    elif on == "chains" and not (getattr(config, "per_token", False) and part.tokens is not None):
        through = paths(part)
        result = pool(method.credit(expand(part, through), config), through, len(part))
    else:
        raise ValueError(
            f"{name_of(method)} gives credit per token and these steps branch: "
            "give every path as an episode of its own, or choose a method that works per step"
        )
    result = replace(result, metrics={**describe(part, result), **result.metrics})
    return result if part is graph else scatter(result, seen, graph)


def forked(graph: StepGraph) -> bool:
    """Does any path run through several episodes? Then episodes are not the chains that methods want."""
    inner = graph.parent >= 0
    crosses = graph.episode[graph.parent[inner]] != graph.episode[inner]
    return bool(graph.branched or crosses.any())


def name_of(method: ModuleType) -> str:
    """The catalogue name of a method's module."""
    return method.__name__.rpartition(".")[2]


def where(graph: StepGraph, row: int) -> str:
    """How to tell the user which step is meant: its line in the file, else episode and turn."""
    if graph.has("line"):
        return f"line {graph.column('line')[row]}"
    return f"episode {graph.episode[row]}, turn {graph.turn[row]}"


def require(method: ModuleType, graph: StepGraph) -> None:
    """Raise ValueError unless the graph has the columns the method names in NEEDS (on every row) and
    READS."""
    for name in (*getattr(method, "NEEDS", ()), *getattr(method, "READS", ())):
        column = graph.columns.get(name)
        known = column is not None
        if column is not None and not name.startswith("token_"):
            absent = np.isnan(column) if column.dtype.kind == "f" else (column.dtype.kind == "i") & (column < 0)
            known = not len(column) or not absent.all()
        if not known:
            at = f"{where(graph, 0)}: {name}: " if len(graph) and graph.has("line") else ""
            raise ValueError(
                f"{at}{name_of(method)} needs the column {name!r}, which these steps do not have: "
                "give it on each step, or choose an annotation that computes it"
            )
        if name.startswith("token_"):
            continue
        if name in getattr(method, "NEEDS", ()) and absent.any():
            at = where(graph, int(np.argmax(absent)))
            raise ValueError(f"{at}: {name}: {name_of(method)} needs it on every step, and here it is missing")


def describe(graph: StepGraph, credit: Credit) -> dict[str, float]:
    """Degenerate groups and where the credit went: shares in 0..1, for the log.

    `zero_variance_groups`: groups of several episodes with one score; `singleton_groups`: groups of one
    episode; `credit_mass_turn_K`: share of the total |advantage| that lies on turn K (16 and later together).
    """
    if not len(graph):
        return {}
    episodes = np.flatnonzero(graph.first & (graph.kind == PLAYED))  # [E]
    m = moments(graph.score[episodes], keys(graph.group[episodes]), std="none")  # each [E]
    groups = np.unique(graph.group[episodes], return_index=True)[1]  # [G] an episode of each group
    mass = np.bincount(np.minimum(graph.turn, 16), credit.positive + credit.negative)
    shares = mass / max(mass.sum(), 1e-300)
    return {
        "zero_variance_groups": float(np.mean((m.n > 1)[groups] & m.constant[groups])),
        "singleton_groups": float(np.mean((m.n == 1)[groups])),
        **{f"credit_mass_turn_{turn}": float(share) for turn, share in enumerate(shares)},
    }


def select(graph: StepGraph, rows: np.ndarray) -> StepGraph:
    """The sub-graph of `rows` with their tokens (contexts cut off) and columns per token: for credit only."""
    part = graph.take(rows)
    if graph.tokens is None:
        return part
    lengths = np.diff(graph.tokens.offsets)  # [N]
    mask = np.repeat(np.isin(np.arange(len(graph)), rows), lengths)  # [S]
    n, s = len(rows), int(mask.sum())
    tokens = Tokens(
        offsets=np.concatenate([[0], np.cumsum(lengths[rows])]),
        ids=graph.tokens.ids[mask],
        sampled=graph.tokens.sampled[mask],
        logprobs=graph.tokens.logprobs[mask],
        allowed_offsets=np.zeros(s + 1, np.int64),
        allowed_ids=np.zeros(0, np.int64),
        context=np.full(n, -1),
        context_tokens=np.zeros(n, np.int64),
    )
    ragged = {k: v[mask] for k, v in graph.columns.items() if k.startswith("token_")}
    return replace(part, columns={**part.columns, **ragged}, tokens=tokens)


def expand(graph: StepGraph, on: Paths) -> StepGraph:
    """The graph of root-to-leaf copies: each path an episode of its own, scored by all its rewards.

    A path is its leaf's rollout and, where a `score` column is given, has the score of its leaf's episode. A step
    whose branches begin in different states leads, on each path, to the state that the path goes on in.
    """
    start = np.ones(len(on.row), bool)
    start[1:] = on.leaf[1:] != on.leaf[:-1]  # [P rows] first row of its path
    end = np.append(np.flatnonzero(start)[1:], len(on.row)) - 1  # [paths]
    per_row = {k: x for k, x in graph.columns.items() if len(x) == len(graph) and not k.startswith("token_")}
    columns = {name: x[on.row] for name, x in per_row.items()}
    columns["parent"] = np.where(start, -1, np.arange(len(on.row)) - 1)
    columns["caller"] = np.full(len(on.row), -1)
    columns["next_state"] = _next_on_path(graph, on, start)
    columns["episode"] = on.leaf
    columns["rollout"] = graph.rollout[on.row[end]][on.leaf]
    if graph.has("score"):
        columns["score"] = graph.score[on.row[end]][on.leaf]
    return StepGraph(columns=columns, names=graph.names)


def _next_on_path(graph: StepGraph, on: Paths, start: np.ndarray) -> np.ndarray:
    """[P rows] next state of each copy; a next state that is no child's is taken as given."""
    below = np.flatnonzero(graph.parent >= 0)
    agrees = graph.state[below] == graph.next_state[graph.parent[below]]
    a_childs = np.isin(np.arange(len(graph)), graph.parent[below[agrees]])  # [N]
    after: np.ndarray = graph.next_state[on.row]  # [P rows]
    inner = np.flatnonzero(~start) - 1  # copies that their path goes on from
    inner = inner[a_childs[on.row[inner]]]
    after[inner] = graph.state[on.row[inner + 1]]
    return after


def pool(credit: Credit, on: Paths, n: int) -> Credit:
    """Sums over paths back on the shared rows: [paths' rows] -> [n]."""

    def total(x: np.ndarray) -> np.ndarray:
        return np.bincount(on.row, x, minlength=n)

    shares = np.maximum(np.bincount(on.row, minlength=n), 1)  # [n] paths through a row

    def part(name: str, x: np.ndarray) -> np.ndarray:
        if x.dtype == bool:
            return total(x) > 0
        adds_up = name.endswith("advantage") or name in ("inter", "intra")  # like the advantage itself
        return total(x) if adds_up else total(x) / shares

    positive, negative = total(credit.positive), total(credit.negative)
    return Credit(
        advantage=positive - negative,
        positive=positive,
        negative=negative,
        weight=total(credit.weight),
        assigned=total(credit.assigned) > 0,
        returns=None if credit.returns is None else total(credit.returns) / shares,
        parts={name: part(name, x) for name, x in credit.parts.items()},
        metrics=credit.metrics,
        on_paths=PathCredit(on, credit.positive, credit.negative, credit.weight),
    )


def scatter(credit: Credit, rows: np.ndarray, graph: StepGraph) -> Credit:
    """Credit of a selection of rows as credit of all of the graph's; the others are not assigned."""
    n = len(graph)
    tokens = 0 if graph.tokens is None else len(graph.tokens.ids)
    mask = np.zeros(0, bool)
    if graph.tokens is not None:
        mask = np.repeat(np.isin(np.arange(n), rows), np.diff(graph.tokens.offsets))  # [S]

    def wide(x: np.ndarray, fill: float = 0.0) -> np.ndarray:
        out = np.zeros(n, bool) if x.dtype == bool else np.full(n, fill)
        out[rows] = x
        return out

    def wide_tokens(x: np.ndarray) -> np.ndarray:
        out = np.zeros(tokens)
        out[mask] = x
        return out

    pathwise = credit.on_paths
    return Credit(
        advantage=wide(credit.advantage),
        positive=wide(credit.positive),
        negative=wide(credit.negative),
        weight=wide(credit.weight),
        assigned=wide(credit.assigned),
        token_advantage=None if credit.token_advantage is None else wide_tokens(credit.token_advantage),
        returns=None if credit.returns is None else wide(credit.returns),
        parts={
            name: wide_tokens(x) if name.startswith("token_") else wide(x, np.nan) for name, x in credit.parts.items()
        },
        metrics=credit.metrics,
        on_paths=None if pathwise is None else pathwise._replace(on=pathwise.on._replace(row=rows[pathwise.on.row])),
    )
