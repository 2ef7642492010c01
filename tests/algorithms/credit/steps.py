"""Small graphs for credit tests: rows as in steps.jsonl, credit printed as the command line prints it."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from agentrl.cli.credit import json_lines
from agentrl.credit import Credit, assign
from agentrl.exchange import steps_graph
from agentrl.graph import StepGraph
from tests.toys.entries import credit_method

Row = dict[str, Any]


def graph_of(rows: Sequence[Row]) -> StepGraph:
    """The step graph of rows, through the interchange format."""
    return steps_graph([json.dumps(row) for row in rows])


KEYS = ("task", "episode", "turn", "action")  # what `agentrl credit --json` says of the step itself


def assigned(method: str, rows: Sequence[Row], **options: Any) -> Credit:
    """The Credit of rows, in the graph's order."""
    return assign(credit_method(method, **options), graph_of(rows))


def credit_of(method: str, rows: Sequence[Row], **options: Any) -> dict[str, list[Any]]:
    """Every printed part of rows, in the order of the rows."""
    graph = graph_of(rows)
    lines = [json.loads(x) for x in json_lines(graph, assign(credit_method(method, **options), graph))]
    return {name: [line[name] for line in lines] for name in lines[0] if name not in KEYS}


def advantage(method: str, rows: Sequence[Row], **options: Any) -> np.ndarray:
    """[N] the printed advantage in the order of the rows."""
    return np.array(credit_of(method, rows, **options)["advantage"], float)


def chain(group: str, episode: str, rewards: Sequence[float], **columns: Sequence[Any]) -> list[Row]:
    """One episode; each extra column gives one value per row, None leaves it out."""
    rows = [{"group": group, "episode": episode, "turn": t, "reward": float(r)} for t, r in enumerate(rewards)]
    for name, values in columns.items():
        for row, value in zip(rows, values, strict=True):
            if value is not None:
                row[name] = value
    return rows


def forest(seed: int, *, groups: int = 3, episodes: int = 4, turns: int = 5, states: int = 4) -> list[Row]:
    """Random chains of 1..turns steps with few states, so that states repeat; every column a method may
    need."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for g in range(groups):
        for e in range(episodes):
            length = int(rng.integers(1, turns + 1))
            values = rng.normal(size=(3, length))
            ended = bool(rng.random() < 0.7)
            part = chain(
                f"g{g}",
                f"g{g}e{e}",
                np.round(rng.normal(size=length), 3).tolist(),
                state=[f"s{rng.integers(states)}" for _ in range(length)],
                action=[f"a{rng.integers(2)}" for _ in range(length)],
                valid=[bool(rng.random() < 0.8) for _ in range(length)],
                matched=[bool(rng.random() < 0.6) for _ in range(length)],
                segment_start=[bool(rng.random() < 0.4) for _ in range(length)],
                value=values[0].tolist(),
                value_high=values[1].tolist(),
                gold_logprob=(-np.abs(values[2])).tolist(),
                gold_logprob_start=[-1.5] + [None] * (length - 1),
                token_value=[rng.normal(size=int(rng.integers(1, 4))).tolist() for _ in range(length)],
                tree=[f"t{e % 2}"] * length,
            )
            part[-1]["terminated" if ended else "truncated"] = True
            part[-1]["next_value"] = float(rng.normal())
            rows += part
    return rows


def tree_rows(seed: int, *, groups: int = 2, trees: int = 2, leaves: int = 4, noisy: bool = False) -> list[Row]:
    """Random multi-turn trees: each further leaf branches off a random step of its tree. Children of one step
    start from one state, unless `noisy`."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for g in range(groups):
        for t in range(trees):
            grown: list[tuple[str, int]] = []
            reached: dict[tuple[str, int] | None, str] = {}
            for leaf in range(leaves):
                name = f"g{g}t{t}e{leaf}"
                above = grown[rng.integers(len(grown))] if grown and rng.random() < 0.8 else None
                parent, start = above, above[1] + 1 if above else 0
                length = int(rng.integers(1, 4))
                part = chain(f"g{g}", name, np.round(rng.normal(size=length), 3).tolist())
                for row in part:
                    row["turn"] += start
                    drawn = f"s{rng.integers(3)}"
                    state = drawn if noisy else reached.setdefault(above, drawn)
                    row |= {"state": state, "action": f"a{rng.integers(2)}"}
                    above = (name, row["turn"])
                if parent:
                    part[0]["parent"] = list(parent)
                else:
                    part[0]["tree"] = f"t{t}"
                grown += [(name, row["turn"]) for row in part[:-1]]
                rows += part
    return rows


def root_to_leaf(rows: Sequence[Row]) -> list[tuple[Row, int]]:
    """Every path as an episode of its own, each copy with the index of the row it copies."""
    at = {(row["episode"], row["turn"]): i for i, row in enumerate(rows)}
    above = [
        at.get(tuple(row["parent"])) if "parent" in row else at.get((row["episode"], row["turn"] - 1)) for row in rows
    ]
    leaves = set(range(len(rows))) - {a for a in above if a is not None}
    out = []
    for leaf in sorted(leaves):
        path: list[int] = []
        step: int | None = leaf
        while step is not None:
            path.append(step)
            step = above[step]
        for i in reversed(path):
            copy = {k: v for k, v in rows[i].items() if k != "parent"} | {"episode": f"leaf{leaf}"}
            out.append((copy | {"tree": rows[path[-1]]["tree"]}, i))
    return out


def by(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[int]]:
    """Indices of rows with equal fields."""
    found: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        found[tuple(row[name] for name in names)].append(i)
    return dict(found)


def normal(values: Sequence[float], std: str = "sample", eps: float = 1e-6) -> list[float]:
    """The plain loop behind group_norm, for groups of two or more."""
    n = len(values)
    mu = sum(values) / n
    if max(values) - min(values) < 1e-12:
        return [0.0] * n
    if std == "none":
        return [v - mu for v in values]
    var = sum((v - mu) ** 2 for v in values) / (n - 1 if std == "sample" else n)
    return [(v - mu) / (var**0.5 + eps) for v in values]


def returns(rows: Sequence[Row], gamma: float) -> list[float]:
    """Discounted return of each row, by a loop over each episode."""
    out = [0.0] * len(rows)
    for indices in by(rows, "group", "episode").values():
        following = 0.0
        for i in sorted(indices, key=lambda i: -rows[i]["turn"]):
            following = out[i] = rows[i]["reward"] + gamma * following
    return out


def scores(rows: Sequence[Row]) -> list[float]:
    """Sum of rewards of each row's episode."""
    out = [0.0] * len(rows)
    for indices in by(rows, "group", "episode").values():
        for i in indices:
            out[i] = sum(rows[j]["reward"] for j in indices)
    return out


def first_rows(rows: Sequence[Row]) -> list[int]:
    """Index of each episode's first row."""
    return [min(i, key=lambda i: rows[i]["turn"]) for i in by(rows, "group", "episode").values()]
