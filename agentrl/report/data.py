"""What the credit page shows, as data: steps, episodes, merged states, and the credit of several methods.

The page reads nothing else, and `agentrl credit ... --html OUT --json` prints it. Arrays lie in columns: one entry per
shown step. NaN becomes null, which is not 0: no credit was given.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel

from agentrl.credit import Credit, agreement
from agentrl.graph import KINDS, PLAYED, PROBE, StepGraph, mean, word
from agentrl.report.printable import printable
from agentrl.types import Status

SCHEMA = 1
TEXT_CHARS = 8_000  # of one observation or answer; the page says how much was cut
Numbers = Sequence[float | None]


class MethodData(BaseModel, frozen=True):
    """One method on the shown steps.

    Attributes:
        name: the method.
        options: its options, defaults included.
        advantage: one number per step, null where the method gives no credit.
        weight: paths through a step times how often each is used.
        parts: named numbers per step, such as `episode_advantage`.
    """

    name: str
    options: Mapping[str, Any]
    advantage: Numbers
    weight: Numbers
    parts: Mapping[str, Numbers]


class EpisodeData(BaseModel, frozen=True):
    """One agent's chain of steps, in the order of the page.

    Attributes:
        name, agent: words of the graph, or numbers where none are stored.
        group: index into `groups`.
        score: sum of the rewards on its path, or the stored score.
        succeeded: did it succeed?
        ending: how it ended, such as `done` or `turn_limit`; empty if the graph does not say.
        failed: it ended by an environment error, so that no statistic counts it.
        kind: `played`, `candidate` or `probe`.
        lane: how many calls lie between it and the main agent.
        steps: its steps, ascending.
    """

    name: str
    agent: str
    group: int
    score: float | None
    succeeded: bool
    ending: str
    failed: bool
    kind: str
    lane: int
    steps: Sequence[int]


class EdgeData(BaseModel, frozen=True):
    """An action between two states, by all steps of a group that took it."""

    source: int
    target: int
    action: int
    steps: Sequence[int]


class GroupData(BaseModel, frozen=True):
    """The copies of one task.

    Attributes:
        name: the task.
        episodes: indices into `episodes`, best score first; called agents behind their caller.
        states: the states that its played steps and candidates leave or reach, by first visit.
        visits: how many steps leave each of `states`.
        score: mean score of the episodes that leave it, null for a state that no episode leaves.
        first: the column (see `StepsData.column`) of the first visit of each of `states`.
        edges: the actions that lead from state to state.
    """

    name: str
    episodes: Sequence[int]
    states: Sequence[int]
    visits: Sequence[int]
    score: Numbers
    first: Sequence[int]
    edges: Sequence[EdgeData]


class StepsData(BaseModel, frozen=True):
    """Columns of the shown steps.

    Attributes:
        row: the step's row in the graph.
        turn: its number in the episode.
        column: where it stands on the time line: steps before it on its path, a called agent's from its caller on.
        parent, caller: shown steps, -1 for none.
        state, next_state, action: indices into `states` and `actions`.
        observation, answer: indices into `texts`, -1 where the graph stores no text.
        status: such as `ok` or `parse_error`.
        values: further columns by name (value, old_value, mc_value, signals and so on), null for NaN.
        tokens: for each step its sampled tokens as [text, log-prob in nats, number of allowed tokens or 0].
    """

    row: Sequence[int]
    turn: Sequence[int]
    column: Sequence[int]
    parent: Sequence[int]
    caller: Sequence[int]
    state: Sequence[int]
    next_state: Sequence[int]
    action: Sequence[int]
    observation: Sequence[int]
    answer: Sequence[int]
    reward: Numbers
    valid: Sequence[bool]
    status: Sequence[str]
    kind: Sequence[str]
    values: Mapping[str, Numbers]
    tokens: Sequence[Sequence[tuple[str, float, int]]]


class CreditData(BaseModel, frozen=True):
    """Everything on the page; `schema_version` counts changes of this form."""

    schema_version: int = SCHEMA
    title: str
    subtitle: str
    shown: str
    methods: Sequence[MethodData]
    groups: Sequence[GroupData]
    episodes: Sequence[EpisodeData]
    steps: StepsData
    states: Sequence[str]
    actions: Sequence[str]
    texts: Sequence[str]
    agreement: Sequence[Mapping[str, Any]]


def credit_data(
    graph: StepGraph,
    credits: Mapping[str, Credit],
    options: Mapping[str, Mapping[str, Any]],
    *,
    title: str,
    subtitle: str = "",
    groups: Sequence[int] | None = None,
    at_most: int = 6_400,
    decode: Callable[[Sequence[int]], Sequence[str]] | None = None,
    text_chars: int = TEXT_CHARS,
) -> CreditData:
    """The data of the credit page.

    Args:
        graph: any step graph.
        credits: the credit of each method on the whole graph, in the order of the page.
        options: the options of each method.
        title, subtitle: of the page.
        groups: numbers of the groups to show; default: those that `choose` takes.
        at_most: steps to show; whole groups only, one at least. What is left out is said in `shown`.
        decode: token ids to one text each; default: ids are shown as numbers.
        text_chars: characters of one text; the page says how many were cut off.

    Raises:
        ValueError: a group does not exist.
    """
    chosen = choose(graph, credits, at_most) if groups is None else _known(graph, groups)
    rows = np.flatnonzero(np.isin(graph.group, chosen))  # [M] the shown steps
    place = np.full(len(graph) + 1, -1, np.int64)  # [N+1] row -> shown step; the last entry serves -1
    place[rows] = np.arange(len(rows))
    column = columns_of_time(graph)  # [N]
    episodes, by_group = _episodes(graph, chosen, place)
    states = _Words(graph, "state", text_chars)
    actions = _Words(graph, "action", text_chars)
    texts: dict[str, int] = {}
    steps = _steps(graph, rows, place, column, states, actions, texts, decode)
    total = len(np.unique(graph.group))
    return CreditData(
        title=title,
        subtitle=subtitle,
        shown=f"{len(chosen)} of {total} groups, {len(rows)} of {len(graph)} steps",
        methods=[_method(name, credit, options.get(name, {}), rows) for name, credit in credits.items()],
        groups=[
            _group(graph, int(g), by_group[int(g)], place, column, states, actions, index)
            for index, g in enumerate(chosen)
        ],
        episodes=episodes,
        steps=steps,
        states=states.words,
        actions=actions.words,
        texts=list(texts),
        agreement=printable(agreement(graph, credits, top=5)) if len(credits) > 1 else [],
    )


def choose(graph: StepGraph, credits: Mapping[str, Credit], at_most: int) -> list[int]:
    """Groups to show, ascending: those with the widest spread of the first method's advantage, then the others.

    Groups are taken whole while no more than `at_most` steps are shown; the first is always taken.
    """
    numbers, inverse, sizes = np.unique(graph.group, return_inverse=True, return_counts=True)  # [G], [N], [G]
    spread = np.zeros(len(numbers))  # [G]
    for credit in list(credits.values())[:1]:
        top, low = np.full(len(numbers), -np.inf), np.full(len(numbers), np.inf)  # [G]
        np.maximum.at(top, inverse[credit.assigned], credit.advantage[credit.assigned])
        np.minimum.at(low, inverse[credit.assigned], credit.advantage[credit.assigned])
        spread = np.where(np.isfinite(top), top - low, 0.0)  # [G]
    taken: list[int] = []
    left = at_most
    for g in np.argsort(-spread, kind="stable").tolist():
        if not taken or sizes[g] <= left:
            taken.append(int(numbers[g]))
            left -= int(sizes[g])
    return sorted(taken)


def columns_of_time(graph: StepGraph) -> np.ndarray:
    """[N] int64, steps before each step on its path; a called agent's chain begins at the column of its caller."""
    before = np.zeros(len(graph), np.int64)  # [N] on the path
    root = np.arange(len(graph))  # [N] first row of the path
    for row in np.flatnonzero(graph.parent >= 0).tolist():  # ascending, and parent[n] < n
        before[row] = before[graph.parent[row]] + 1
        root[row] = root[graph.parent[row]]
    start = np.zeros(len(graph), np.int64)  # [N] column of the path's first row
    called = np.flatnonzero(graph.caller >= 0)  # [C]
    for _ in range(len(called) + 1):  # one pass per level of calls
        moved = start.copy()
        np.maximum.at(moved, root[called], (start[root] + before)[graph.caller[called]])
        if np.array_equal(moved, start):
            break
        start = moved
    return start[root] + before


class _Words:
    """The words of the ids that are shown, each once."""

    def __init__(self, graph: StepGraph, kind: str, text_chars: int) -> None:
        self.graph, self.kind, self.text_chars = graph, kind, text_chars
        self.index: dict[str, int] = {}

    @property
    def words(self) -> list[str]:
        return [_cut(text, self.text_chars) for text in self.index]

    def of(self, number: int) -> int:
        return self.index.setdefault(word(self.graph, self.kind, number), len(self.index))


def _known(graph: StepGraph, groups: Sequence[int]) -> list[int]:
    known = set(np.unique(graph.group).tolist())
    for group in groups:
        if group not in known:
            first = ", ".join(map(str, sorted(known)[:10]))
            raise ValueError(f"there is no group {group}: the steps have {len(known)} groups, such as {first}")
    return sorted(set(groups))


def _method(name: str, credit: Credit, options: Mapping[str, Any], rows: np.ndarray) -> MethodData:
    advantage = np.where(credit.assigned, credit.advantage, np.nan)  # [N]
    parts = {k: numbers(v[rows]) for k, v in credit.parts.items()}
    if credit.returns is not None:
        parts = {"returns": numbers(credit.returns[rows]), **parts}
    return MethodData(
        name=name, options=options, advantage=numbers(advantage[rows]), weight=numbers(credit.weight[rows]), parts=parts
    )


def numbers(values: np.ndarray) -> list[float | None]:
    """Numbers for JSON, six digits: null for NaN and for infinities."""
    return [float(f"{x:.6g}") if np.isfinite(x) else None for x in np.asarray(values, np.float64).tolist()]


def _episodes(
    graph: StepGraph, chosen: Sequence[int], place: np.ndarray
) -> tuple[list[EpisodeData], dict[int, list[int]]]:
    """The episodes of the chosen groups, and the indices of those of each group."""
    score, succeeded, failed, lane = graph.score, graph.succeeded, graph.failed(), _lanes(graph)
    episodes: list[EpisodeData] = []
    by_group: dict[int, list[int]] = {}
    for index, group in enumerate(chosen):
        rows = np.flatnonzero(graph.group == group)
        by_group[int(group)] = []
        for number in _order(graph, rows, score):
            own = rows[graph.episode[rows] == number]
            last = int(own[np.argmax(graph.turn[own])])
            by_group[int(group)].append(len(episodes))
            ending = int(graph.ending[own].max())
            episodes.append(
                EpisodeData(
                    name=printable(word(graph, "episode", number)),
                    agent=printable(word(graph, "agent", int(graph.agent[last]))),
                    group=index,
                    score=numbers(score[[last]])[0],
                    succeeded=bool(succeeded[last]),
                    ending=Status(ending).name.lower() if ending else "",
                    failed=bool(failed[last]),
                    kind=KINDS[int(graph.kind[last])],
                    lane=int(lane[last]),
                    steps=place[own[np.argsort(graph.turn[own], kind="stable")]].tolist(),
                )
            )
    return episodes, by_group


def _lanes(graph: StepGraph) -> np.ndarray:
    """[N] int64, calls between a step's agent and the main agent."""
    lane = np.zeros(len(graph), np.int64)
    called = np.flatnonzero(graph.caller >= 0)
    for _ in range(len(called)):
        deeper = lane.copy()
        deeper[called] = lane[graph.caller[called]] + 1
        if np.array_equal(deeper, lane):
            break
        lane = deeper
    return lane


def _order(graph: StepGraph, rows: np.ndarray, score: np.ndarray) -> list[int]:
    """Episodes of one group: rollouts with the best main episode first, inside a rollout as they were begun."""
    main = rows[graph.caller[rows] < 0]
    best: dict[int, float] = {}
    for rollout, value in zip(graph.rollout[main].tolist(), score[main].tolist(), strict=True):
        best[rollout] = max(best.get(rollout, -np.inf), value)
    first = {int(e): int(r) for e, r in zip(graph.episode[rows][::-1], rows[::-1], strict=True)}  # episode -> first row
    rollout = {int(e): int(graph.rollout[r]) for e, r in first.items()}
    return sorted(first, key=lambda e: (-best.get(rollout[e], -np.inf), rollout[e], first[e]))


def _group(
    graph: StepGraph,
    number: int,
    episodes: Sequence[int],
    place: np.ndarray,
    column: np.ndarray,
    states: _Words,
    actions: _Words,
    index: int,
) -> GroupData:
    rows = np.flatnonzero((graph.group == number) & (graph.kind != PROBE) & (graph.state >= 0))
    first: dict[int, int] = {}
    for row in rows[np.argsort(column[rows], kind="stable")].tolist():
        first.setdefault(int(graph.state[row]), int(column[row]))
        if graph.next_state[row] >= 0:
            first.setdefault(int(graph.next_state[row]), int(column[row]) + 1)
    seen = list(first)
    played = rows[graph.kind[rows] == PLAYED]
    _, group_of = np.unique(graph.state[played], return_inverse=True)  # [P]
    of_state = dict(zip(graph.state[played].tolist(), mean(graph.score[played], group_of), strict=True))
    count = {s: int((graph.state[played] == s).sum()) for s in seen}
    edges: dict[tuple[int, int, int], list[int]] = {}
    for row in rows[graph.next_state[rows] >= 0].tolist():
        key = (int(graph.state[row]), int(graph.next_state[row]), int(graph.action[row]))
        edges.setdefault(key, []).append(int(place[row]))
    return GroupData(
        name=printable(word(graph, "group", number)),
        episodes=episodes,
        states=[states.of(s) for s in seen],
        visits=[count[s] for s in seen],
        score=[numbers(np.array([of_state[s]]))[0] if s in of_state else None for s in seen],
        first=[first[s] for s in seen],
        edges=[
            EdgeData(source=states.of(s), target=states.of(t), action=actions.of(a), steps=steps)
            for (s, t, a), steps in edges.items()
        ],
    )


def _steps(
    graph: StepGraph,
    rows: np.ndarray,
    place: np.ndarray,
    column: np.ndarray,
    states: _Words,
    actions: _Words,
    texts: dict[str, int],
    decode: Callable[[Sequence[int]], Sequence[str]] | None,
) -> StepsData:
    def text(name: str) -> list[int]:
        stored = graph.texts.get(name)
        if stored is None:
            return [-1] * len(rows)
        return [texts.setdefault(_cut(stored[row], actions.text_chars), len(texts)) for row in rows.tolist()]

    shown = ("value", "old_value", "mc_value", "mc_error", "env_score", "entropy")
    extra = [k for k in graph.columns if k in shown or k.startswith(("signal/", "info."))]
    return StepsData(
        row=rows.tolist(),
        turn=graph.turn[rows].tolist(),
        column=column[rows].tolist(),
        parent=place[graph.parent[rows]].tolist(),
        caller=place[graph.caller[rows]].tolist(),
        state=[states.of(s) for s in graph.state[rows].tolist()],
        next_state=[states.of(s) for s in graph.next_state[rows].tolist()],
        action=[actions.of(a) for a in graph.action[rows].tolist()],
        observation=text("observation"),
        answer=text("answer"),
        reward=numbers(graph.reward[rows]),
        valid=graph.valid[rows].tolist(),
        status=[Status(s).name.lower() for s in graph.status[rows].tolist()],
        kind=[KINDS[k] for k in graph.kind[rows].tolist()],
        values={k: numbers(graph.columns[k][rows]) for k in sorted(extra)},
        tokens=[_tokens(graph, row, decode) for row in rows.tolist()],
    )


def _tokens(
    graph: StepGraph, row: int, decode: Callable[[Sequence[int]], Sequence[str]] | None
) -> list[tuple[str, float, int]]:
    """[text, log-prob, number of allowed tokens or 0] of each sampled token of a row."""
    table = graph.tokens
    if table is None:
        return []
    index = np.arange(table.offsets[row], table.offsets[row + 1])
    index = index[table.sampled[index]]
    ids = table.ids[index].tolist()
    words = printable(list(decode(ids))) if decode is not None else [str(i) for i in ids]
    allowed = (table.allowed_offsets[index + 1] - table.allowed_offsets[index]).tolist()
    logprob = [float(f"{x:.4g}") for x in table.logprobs[index].tolist()]
    return list(zip(words, logprob, allowed, strict=True))


def _cut(text: str, most: int) -> str:
    """At most `most` characters; lone surrogates, which no file can hold, become a question mark."""
    text = printable(text)
    if len(text) <= most:
        return text
    return f"{text[:most]} … ({len(text) - most} more characters)"
