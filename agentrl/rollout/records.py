"""What a rollout writes down, and the step graph made from it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from agentrl.graph.step_graph import COLUMNS, PLAYED, StepGraph, Tokens
from agentrl.rollout.branch import Point
from agentrl.types import Generation, Observation, Status, Task

NUMERIC = (bool, int, float, np.bool_, np.integer, np.floating)


@dataclass(kw_only=True, eq=False)
class StepRecord:
    """One step. `added` [T] are the prompt tokens this step adds; `continues` says whether they extend the
    episode's previous path; `value` is a Monte Carlo estimate of its state, NaN where there is none; `calls` are
    the tool calls its answer asks for; `rewrites` says that the answer was for the model's own memory."""

    observation: Observation
    added: np.ndarray
    continues: bool
    generation: Generation
    action: str
    valid: bool
    status: Status
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    value: float = math.nan
    calls: int = 0
    rewrites: bool = False


@dataclass(kw_only=True, eq=False)
class EpisodeRecord:
    """One agent's chain in one rollout, from the task's beginning to its end.

    A branch holds the very step objects that it shares with the chain it left, as `steps[:inherited]`.

    Attributes:
        task: what was played.
        group: index of the task in its batch; copies of one task share it.
        copy: which copy of the task.
        agent, policy: names.
        caller: the step that called this agent; None for the agent the task was given to.
        called: the chains of agents that this one called, in the order of the calls.
        tree: which tree of its group; None for one of its own.
        kind: PLAYED, CANDIDATE or PROBE: of the steps that are not shared.
        steps: the steps, in time order.
        inherited: how many of the first steps another chain played.
        final: the last observation; its tokens `tail` are never trained. tail_continues: they extend the last step's
            path, and are no prompt of their own.
        ending: how it ended; OK for a chain that was stopped and can go on.
        fault: what the environment did wrong, for the report.
        attempts: tries it took (1 if the environment never failed).
        seconds: wall-clock time; kept out of the graph.
        tokens, calls: tokens sampled and actions carried out for it (each tool call of an answer), lost tries included,
            shared steps not.
        usage: what its generations say they used, summed, lost tries included.
        replayed: actions carried out again to reach its branch point.
        points: by turn, the moments it can be played on from, where they were asked for.
    """

    task: Task
    group: int
    copy: int
    agent: str = "agent"
    policy: str = "policy"
    caller: "StepRecord | None" = None
    called: "list[EpisodeRecord]" = field(default_factory=list)
    tree: int | None = None
    kind: int = PLAYED
    steps: list[StepRecord] = field(default_factory=list)
    inherited: int = 0
    final: Observation | None = None
    tail: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    tail_continues: bool = True
    ending: Status = Status.DONE
    fault: str = ""
    attempts: int = 1
    seconds: float = 0.0
    tokens: int = 0
    usage: dict[str, float] = field(default_factory=dict)
    calls: int = 0
    replayed: int = 0
    points: dict[int, Point] = field(default_factory=dict)

    def spend(self, generation: Generation) -> None:
        """Count what an answer cost."""
        self.tokens += len(generation.token_ids)
        for name, count in generation.usage.items():
            self.usage[name] = self.usage.get(name, 0.0) + count

    @property
    def own(self) -> list[StepRecord]:
        """The steps no other chain played."""
        return self.steps[self.inherited :]

    @property
    def score(self) -> float:
        """All rewards on its path."""
        return sum(step.reward for step in self.steps)

    def chains(self) -> "Iterator[EpisodeRecord]":
        """This chain and those of the agents it called, callers first."""
        yield self
        for chain in self.called:
            yield from chain.chains()

    @property
    def success(self) -> bool:
        """The environment's word if it gives one, else a positive total reward."""
        if self.steps and "success" in self.steps[-1].info:
            return bool(self.steps[-1].info["success"])
        return self.score > 0


def same_state(observation: Observation) -> str:
    """The string whose equality means "the same state"."""
    return observation.state_key or observation.text


class _Ids:
    """Dense ids of (scope, word) pairs in order of first appearance; ids of different scopes differ."""

    def __init__(self) -> None:
        self._ids: dict[tuple[int, str], int] = {}

    def __call__(self, word: str, scope: int = 0) -> int:
        return self._ids.setdefault((scope, word), len(self._ids))

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(word for _, word in self._ids)


def build_graph(episodes: Sequence[EpisodeRecord]) -> StepGraph:
    """The step graph of a batch, rows in the order given, played ones first.

    A step that several records share is one row, in the episode of the first of them. Records without a step of their
    own leave no row. A called agent's chain follows its caller's: an episode of its own in the same rollout and group.
    Numeric entries of a step's `info` become columns `info.NAME`, those of its `signals` columns `signal/NAME` (NaN
    where absent). Steps that rewrote a memory are marked in a column `rewrites`, if there are any.
    """
    roots = sorted((e for e in episodes if e.own), key=lambda e: e.kind != PLAYED)
    chains = [(chain, root) for root in roots for chain in root.chains() if chain.own]
    ids = {name: _Ids() for name in ("group", "state", "action", "agent", "policy", "episode", "tree")}
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    rows: dict[int, int] = {}  # row of each step, by its identity
    steps: list[StepRecord] = []
    number_of = {id(chain): number for number, (chain, _) in enumerate(chains)}
    for number, (episode, root) in enumerate(chains):
        ids["episode"](f"{episode.task.key}#{episode.copy}", number)
        places = _Places(number, number_of[id(root)], ids["group"](root.task.key, root.group))
        steps += _add_rows(columns, ids, rows, places, episode)
    arrays: dict[str, np.ndarray] = {name: np.asarray(values, COLUMNS[name]) for name, values in columns.items()}
    values = np.array([step.value for step in steps])  # [N]
    rewrites = np.array([step.rewrites for step in steps], bool)  # [N]
    told = {"value": values} if not np.isnan(values).all() else {}
    told |= {"rewrites": rewrites} if rewrites.any() else {}
    return StepGraph(
        columns={**arrays, **_info_columns(steps), **told},
        tokens=_tokens(steps, arrays["parent"]),
        names={name: table.words for name, table in ids.items() if name != "tree"},
        texts={
            "observation": [step.observation.text for step in steps],
            "answer": [step.generation.text for step in steps],
        },
        tails=_tails([episode for episode, _ in chains]),
    )


class _Places(NamedTuple):
    """The numbers of a chain's episode, rollout and group."""

    episode: int
    rollout: int
    group: int


def _add_rows(
    columns: dict[str, list[Any]], ids: Mapping[str, _Ids], rows: dict[int, int], at: _Places, episode: EpisodeRecord
) -> list[StepRecord]:
    """Rows of the episode's steps that have none yet; those steps."""
    number, group = at.episode, at.group
    own_tree = episode.tree is None or episode.caller is not None
    tree = ids["tree"](f"own {number}" if own_tree else str(episode.tree), group)
    caller = -1 if episode.caller is None else rows[id(episode.caller)]
    final = same_state(episode.final) if episode.final else ""
    added: list[StepRecord] = []
    above = -1
    for turn, step in enumerate(episode.steps):
        if id(step) in rows:
            above = rows[id(step)]
            continue
        last = turn == len(episode.steps) - 1
        following = final if last else same_state(episode.steps[turn + 1].observation)
        row = {
            "group": group,
            "rollout": at.rollout,
            "episode": number,
            "turn": turn,
            "kind": episode.kind,
            "parent": above,
            "tree": tree,
            "state": ids["state"](same_state(step.observation), group),
            "action": ids["action"](step.action, group),
            "next_state": ids["state"](following, group),
            "agent": ids["agent"](episode.agent),
            "policy": ids["policy"](episode.policy),
            "caller": caller,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "valid": step.valid,
            "status": step.status,
            "ending": episode.ending if last else Status.OK,
            "weight": step.generation.weight,
            "version_oldest": step.generation.policy_version[0],
            "version_newest": step.generation.policy_version[1],
        }
        for name, value in row.items():
            columns[name].append(value)
        above = rows[id(step)] = len(columns["parent"]) - 1
        added.append(step)
    assert added, "an episode whose every step another one has"
    return added


def _info_columns(steps: Sequence[StepRecord]) -> dict[str, np.ndarray]:
    """`info.NAME` [N] float64 of every numeric entry and `signal/NAME` of every signal, NaN where one is absent."""
    numeric = sorted({name for step in steps for name, value in step.info.items() if isinstance(value, NUMERIC)})
    columns = {f"info.{name}": np.array([_number(step.info.get(name)) for step in steps]) for name in numeric}
    told = [step.info.get("signals", {}) for step in steps]
    signals = sorted({name for named in told for name in named})
    return columns | {f"signal/{name}": np.array([_number(named.get(name)) for named in told]) for name in signals}


def _number(value: object) -> float:
    if not isinstance(value, NUMERIC):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an integer beyond the floats
        return math.inf if value > 0 else -math.inf


def _tokens(steps: Sequence[StepRecord], parent: np.ndarray) -> Tokens | None:
    """The token table, or None if the policy had no tokenizer."""
    if not any(len(step.generation.token_ids) for step in steps):
        return None
    pieces = [piece for step in steps for piece in (step.added, step.generation.token_ids)]
    lengths = np.array([len(piece) for piece in pieces], np.int64)  # [2N]
    own = lengths.reshape(-1, 2).sum(1)  # [N]
    sampled = np.repeat(np.tile([False, True], len(steps)), lengths)  # [S]
    logprobs = np.zeros(len(sampled))  # [S]
    logprobs[sampled] = np.concatenate([step.generation.logprobs for step in steps])
    context = np.where([step.continues for step in steps], parent, -1)  # [N]
    path = np.zeros(len(steps), np.int64)  # [N] tokens on each row's path
    for row, before in enumerate(context):
        path[row] = own[row] + (path[before] if before >= 0 else 0)
    allowed_offsets, allowed_ids = _allowed(steps)
    return Tokens(
        offsets=np.concatenate([[0], np.cumsum(own)]),
        ids=np.concatenate(pieces).astype(np.int64),
        sampled=sampled,
        logprobs=logprobs,
        allowed_offsets=allowed_offsets,
        allowed_ids=allowed_ids,
        context=context,
        context_tokens=path - own,
    )


def _allowed(steps: Sequence[StepRecord]) -> tuple[np.ndarray, np.ndarray]:
    """CSR of the sets each token was restricted to; prompt tokens have empty ones."""
    sizes: list[int] = []
    sets: list[np.ndarray] = []
    for step in steps:
        sizes.extend([0] * len(step.added))
        allowed = step.generation.allowed
        if allowed is None:
            sizes.extend([0] * len(step.generation.token_ids))
        else:
            sizes.extend(len(a) for a in allowed)
            sets.extend(allowed)
    flat = np.concatenate(sets).astype(np.int64) if sets else np.zeros(0, np.int64)
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), flat


def _tails(episodes: Sequence[EpisodeRecord]) -> dict[str, np.ndarray]:
    """The final observations' tokens in CSR form, one slice an episode."""
    lengths = [len(e.tail) for e in episodes]
    flat = np.concatenate([e.tail for e in episodes]) if episodes else np.zeros(0, np.int64)
    return {
        "tail_offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        "tail_ids": flat,
        "tail_continues": np.array([e.tail_continues for e in episodes], bool),
    }
