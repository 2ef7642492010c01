"""Add continuations to a stored graph: their rows are appended, and the stored rows do not change.

Letters: N rows of the stored graph, M new rows, S tokens of the stored graph.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from agentrl.config import Entry
from agentrl.credit import OWN, RewardTransform, rescore
from agentrl.evaluate.continuations import StoredStep
from agentrl.graph import StepGraph, Tokens, pad_columns
from agentrl.rollout import EpisodeRecord, build_graph, rows_of_graph


def attach_branches(place: StoredStep, records: Sequence[EpisodeRecord], *, exact: bool) -> StepGraph:
    """The graph of the place, with further rows: the steps that the continuations played.

    Args:
        place: the step of the stored graph from whose state the continuations were played.
        records: the continuations, which share the steps before that step.
        exact: the records' tokens come from the stored graph's tokenizer; if False, the new rows have no tokens.
    """
    graph, fresh = place.graph, build_graph(records)
    shared = len(place.before)
    rows = np.arange(shared, len(fresh))  # [M] rows of the fresh graph
    n = len(graph)
    # Row of the fresh graph -> its row in the new graph. The last entry is for the index -1, which stands for "no row".
    place_of = np.concatenate([np.array(place.before, np.int64), n + np.arange(len(rows)), [-1]])
    names = {name: list(words) for name, words in graph.names.items()}
    columns = _columns(graph, fresh, rows, place_of, names, place.row)
    tokens = None if graph.tokens is None else _tokens(graph.tokens, fresh.tokens if exact else None, rows, place_of)
    return StepGraph(
        columns=columns,
        tokens=tokens,
        names=names,
        texts={k: [*words, *([fresh.texts[k][i] for i in rows.tolist()])] for k, words in graph.texts.items()},
        tails=_tails(graph.tails, fresh.tails, exact=exact),
    )


def mark_row(graph: StepGraph, row: int, **values: float) -> StepGraph:
    """The graph in which the column [N] of each name in `values` has the given value at `row`.

    A column that the graph does not have yet is NaN on all other rows.
    """
    columns = {}
    for name, value in values.items():
        columns[name] = graph.columns[name].copy() if graph.has(name) else np.full(len(graph), np.nan)
        columns[name][row] = value
    return graph.with_columns(**columns)


def with_run_rewards(
    graph: StepGraph, records: Sequence[EpisodeRecord], entries: Sequence[Entry[RewardTransform]]
) -> StepGraph:
    """Apply the run's reward transforms to the new rows of a graph with branches.

    The rewards of the stored rows were transformed in the run. The steps of the records get the same rewards as the new
    rows. The new rows are probes. Reward transforms leave probes out of their statistics, so the rewards of the stored
    rows do not change.

    Args:
        graph: [N + M] rows; the last M are the steps of the records and of the agents that they called, in the
            order of `build_graph(records)`.
        records: the continuations, whose steps are changed.
        entries: the run's `[reward]`; if empty, the environment's reward stays.
    """
    scored = rescore(graph, entries)
    new = sum(len(chain.own) for record in records for chain in record.chains())
    steps = [step for step, _ in rows_of_graph(records)]  # the shared steps first, which the graph had before
    for step, reward in zip(steps[len(steps) - new :], scored.reward[len(scored) - new :].tolist(), strict=True):
        step.reward = reward
    return scored


def _columns(
    graph: StepGraph,
    fresh: StepGraph,
    rows: np.ndarray,
    place_of: np.ndarray,
    names: dict[str, list[str]],
    at: int,
) -> dict[str, np.ndarray]:
    """The columns [N + M] of the graph with branches; the texts of new ids are added to `names`."""
    new: dict[str, np.ndarray] = {}
    group = int(graph.group[at])
    for kind in ("agent", "policy"):
        new[kind] = _words(names, kind, _known(graph, (kind,)), fresh, rows, (kind,))[0]
    of_group = np.flatnonzero(graph.group == group)  # equal states of different groups have different ids
    new["action"] = _words(names, "action", _known(graph, ("action",), of_group), fresh, rows, ("action",))[0]
    both = ("state", "next_state")
    new["state"], new["next_state"] = _words(names, "state", _known(graph, both, of_group), fresh, rows, both)
    for name in ("episode", "rollout"):
        first = max(int(graph.columns[name].max()) + 1, len(names.get("episode", ())))
        new[name] = first + np.unique(fresh.columns[name][rows], return_inverse=True)[1]
    for number in range(len(np.unique(new["episode"]))):
        names["episode"].append(f"{names['group'][group]}#branch{new['episode'].min() + number}")
    new["group"], new["tree"] = (np.full(len(rows), graph.columns[k][at]) for k in ("group", "tree"))
    for name in ("parent", "caller"):
        new[name] = place_of[fresh.columns[name][rows]]
    new[OWN], new["env_score"] = fresh.reward[rows], fresh.score[rows]  # used only if the graph has these columns
    columns: dict[str, np.ndarray] = {}
    for name in {**graph.columns, **fresh.columns}:
        old = graph.columns[name] if graph.has(name) else _nothing(fresh.columns[name], len(graph))
        more = new[name] if name in new else fresh.columns[name][rows] if fresh.has(name) else _nothing(old, len(rows))
        columns[name] = np.concatenate([old, more]).astype(old.dtype)
    return columns


def _nothing(like: np.ndarray, count: int) -> np.ndarray:
    """[count] the value that stands for "none" in a column of this type: NaN, False or -1."""
    fill = {"f": np.nan, "b": False}.get(like.dtype.kind, -1)
    return np.full(count, fill, like.dtype)


def _known(graph: StepGraph, columns: Sequence[str], rows: np.ndarray | slice = slice(None)) -> dict[str, int]:
    """Text -> id, for the ids that occur in `rows` of these columns; the columns share one table of names."""
    words = graph.names[columns[0]]
    ids = np.unique(np.concatenate([graph.columns[name][rows] for name in columns]))
    return {words[i]: i for i in ids.tolist()}


def _words(
    names: dict[str, list[str]],
    table: str,
    known: dict[str, int],
    fresh: StepGraph,
    rows: np.ndarray,
    columns: Sequence[str],
) -> list[np.ndarray]:
    """The named columns of the fresh graph, each [M], with the ids of the stored graph.

    Texts that the stored graph does not have are added to `names` and `known`.
    """
    id_columns = []
    for name in columns:
        ids = []
        for i in fresh.columns[name][rows].tolist():
            word = fresh.names[table][i]
            if word not in known:
                known[word] = len(names[table])
                names[table].append(word)
            ids.append(known[word])
        id_columns.append(np.array(ids, np.int64))
    return id_columns


def _tokens(old: Tokens, fresh: Tokens | None, rows: np.ndarray, place_of: np.ndarray) -> Tokens:
    """The token table of the stored rows and the new rows. The new tokens are NaN in every token column.

    If `fresh` is None, the new rows have no tokens.
    """
    m, last = len(rows), old.offsets[-1]
    if fresh is None:
        nothing = np.zeros(m, np.int64)
        return Tokens(**{
            **vars(old),
            "offsets": np.append(old.offsets, np.full(m, last)),
            "context": np.append(old.context, nothing - 1),
            "context_tokens": np.append(old.context_tokens, nothing),
        })  # fmt: skip
    start = fresh.offsets[rows[0]]
    sets = fresh.allowed_offsets[start]
    return Tokens(
        offsets=np.append(old.offsets, fresh.offsets[rows + 1] - start + last),
        ids=np.append(old.ids, fresh.ids[start:]),
        sampled=np.append(old.sampled, fresh.sampled[start:]),
        logprobs=np.append(old.logprobs, fresh.logprobs[start:]),
        allowed_offsets=np.append(
            old.allowed_offsets, fresh.allowed_offsets[start + 1 :] - sets + old.allowed_offsets[-1]
        ),
        allowed_ids=np.append(old.allowed_ids, fresh.allowed_ids[sets:]),
        context=np.append(old.context, place_of[fresh.context[rows]]),
        context_tokens=np.append(old.context_tokens, fresh.context_tokens[rows]),
        columns=pad_columns(old.columns, len(fresh.ids) - int(start)),
    )


def _tails(old: Mapping[str, np.ndarray], fresh: Mapping[str, np.ndarray], *, exact: bool) -> dict[str, np.ndarray]:
    """The tails (tokens of final observations) of the old episodes, then those of the new episodes.

    If not `exact`, the tails of the new episodes have no tokens.
    """
    if "tail_offsets" not in old:
        return dict(old)
    lengths = np.diff(fresh["tail_offsets"])
    lengths = lengths if exact else np.zeros_like(lengths)
    ends = old["tail_offsets"][-1] + np.cumsum(lengths)
    tails = {
        "tail_offsets": np.append(old["tail_offsets"], ends),
        "tail_ids": np.append(old["tail_ids"], fresh["tail_ids"]) if exact else old["tail_ids"],
    }
    if "tail_continues" in old:
        tails["tail_continues"] = np.append(old["tail_continues"], fresh["tail_continues"])
    return tails
