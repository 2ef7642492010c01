"""From rows of a step graph to the batch a model is trained on, and to micro-batches of it.

Letters: N rows, S tokens of the graph, T packed tokens, K targets (the tokens that are trained).

A target is a *decision*: a sampled token that had an alternative. A token whose allowed set has one member
has log-probability 0 whatever the weights, so it carries no loss and is not counted in any mean over tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from agentrl.graph import Tokens, decisions, token_rows
from agentrl.model.layout import MIN_SHARED, Layout, lay_out, unshared

Sharing = Literal["tree", "paths"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """What one forward and backward pass takes. Losses of micro-batches are summed, never averaged.

    Attributes:
        layout: where the T packed tokens lie and who may attend to whom.
        ids: [T] int64 packed tokens.
        sharing: "tree", or "paths" for models whose layers need every path as a sequence of its own.
        target: [K] int64 ids of the trained tokens.
        at: [K] int64, the packed token whose hidden state predicts the target. At a fork one state predicts
            several.
        token: [K] int64, index of the target in the graph's token table.
        step: [K] int64, its row in the graph.
        weight: [K] float64, aggregation weight, already divided by the denominator of the whole mini-batch.
        allowed_offsets: [K+1] int64 into `allowed_ids`; an empty slice means unrestricted.
        allowed_ids: int64.
    """

    layout: Layout
    ids: np.ndarray
    sharing: Sharing
    target: np.ndarray
    at: np.ndarray
    token: np.ndarray
    step: np.ndarray
    weight: np.ndarray
    allowed_offsets: np.ndarray
    allowed_ids: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


def pack(
    tokens: Tokens,
    rows: np.ndarray,
    weight: np.ndarray,
    *,
    sharing: Sharing = "tree",
    min_shared: int = MIN_SHARED,
    targets: np.ndarray | None = None,
) -> Batch:
    """One batch of all decisions of `rows`.

    Args:
        tokens: the token table of the graph.
        rows: ascending rows to train.
        weight: [S] aggregation weight of each token; read at the decisions of `rows`.
        sharing: "paths" lays every root-to-leaf path out whole.
        min_shared: prompts merge where at least this many leading tokens are equal.
        targets: [S] bool, other tokens than the decisions (a critic reads values before them).

    Raises:
        ValueError: a sampled token has nothing before it.
    """
    layout = lay_out(tokens, rows, min_shared) if sharing == "tree" else unshared(tokens, rows)
    chosen = np.zeros(len(tokens.context), bool)  # [N]
    chosen[rows] = True
    row = token_rows(tokens)  # [S]
    trained = (decisions(tokens) if targets is None else targets) & chosen[row]  # [S]
    place = np.flatnonzero(trained[layout.source])  # packed index of each target, in pre-order
    if sharing == "paths":
        place = _on_one_path(layout, place, row)
    token = layout.source[place]  # [K]
    at = layout.predictor[place]  # [K]
    if (at < 0).any():
        raise ValueError(
            f"row {row[token[at < 0][0]]} begins with a sampled token, which nothing predicts: "
            "give the prompt at least one token, such as a beginning-of-text token"
        )
    offsets, allowed = _take_csr(tokens.allowed_offsets, tokens.allowed_ids, token)
    whole = Batch(
        layout=layout,
        ids=tokens.ids[layout.source],
        sharing=sharing,
        target=tokens.ids[token],
        at=at,
        token=token,
        step=row[token],
        weight=weight[token],
        allowed_offsets=offsets,
        allowed_ids=allowed,
    )
    return _of_targets(whole, np.arange(len(token)))


def _on_one_path(layout: Layout, place: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Of targets that lie on several paths, those of one path a row: the first that has all of the row."""
    path = np.cumsum(layout.position == 0)[place]  # [places]
    owner = row[layout.source[place]]  # [places]
    last = np.zeros(len(row), np.int64)  # [rows] the row's last target
    np.maximum.at(last, owner, layout.source[place])
    complete = layout.source[place] == last[owner]  # [places]
    chosen = np.full(len(row), np.iinfo(np.int64).max)  # [rows]
    np.minimum.at(chosen, owner[complete], path[complete])
    kept: np.ndarray = place[path == chosen[owner]]
    return kept


def microbatches(batch: Batch, max_tokens: int, whole: np.ndarray | None = None) -> Iterator[Batch]:
    """Cut a batch between steps so that no piece has more than `max_tokens` packed tokens.

    Targets are taken in pre-order; a piece is a stretch of them with the paths they need, so that a subtree
    that is cut off takes a copy of its ancestors' path, without targets. Cuts are made where the copy is
    short. A step's targets lie side by side (a row cut by a branch goes on before the branch) and stay together,
    as turn ratios want.

    Args:
        batch: of one mini-batch.
        max_tokens: packed tokens of a piece.
        whole: [K] ids; targets of equal id then stay in one piece (for losses that need an episode's tokens
            at once).

    Raises:
        ValueError: a single path is longer than `max_tokens`.
    """
    if len(batch) <= max_tokens:
        if len(batch.target):
            yield batch
        return
    if whole is not None:
        yield from _in_units(batch, max_tokens, whole)
        return
    first = np.flatnonzero(np.diff(batch.step, prepend=-1))  # [G] the first target of each step
    assert len(first) == len(np.unique(batch.step)), "a step's targets must lie side by side"
    longest = int(batch.layout.position[batch.at].max()) + 1
    if longest > max_tokens:
        raise ValueError(
            f"a path has {longest} tokens, the limit of a micro-batch is {max_tokens}: "
            "raise update.max_tokens or shorten the episodes"
        )
    reach = np.append(0, np.maximum.accumulate(np.maximum.reduceat(batch.at, first)) + 1)  # [G+1] tokens laid before
    copies = _copies(batch.layout, batch.at[first], reach[:-1])  # [G]
    start = 0
    while start < len(first):
        cost = copies[start] + reach[start + 1 :] - reach[start]  # of a piece up to and with each later step
        fits = int(np.searchsorted(cost, max_tokens, side="right"))
        stop = start + fits
        if stop < len(first):
            worth = int(np.searchsorted(cost, max_tokens // 4))  # a smaller piece is not worth a launch
            options = np.arange(min(start + worth + 1, stop), stop + 1)
            stop = int(options[len(options) - 1 - np.argmin(copies[options][::-1])])
        end = first[stop] if stop < len(first) else len(batch.target)
        yield _of_targets(batch, np.arange(first[start], end))
        start = stop


def _in_units(batch: Batch, max_tokens: int, unit: np.ndarray) -> Iterator[Batch]:
    """Pieces of whole units, taken in the order of their first targets."""
    _, first, key, size = np.unique(unit, return_index=True, return_inverse=True, return_counts=True)
    targets = np.split(np.argsort(key, kind="stable"), np.cumsum(size)[:-1])  # of each unit, ascending
    laid = np.zeros(len(batch), bool)  # [T] tokens the piece has
    held = 0
    piece: list[np.ndarray] = []
    for u in np.argsort(first).tolist():
        need = _paths_to(batch.layout, batch.at[targets[u]])
        if len(need) > max_tokens:
            raise ValueError(
                f"an episode (on a branched graph: a tree) has {len(need)} packed tokens and its loss needs them at "
                f"once, the limit of a micro-batch is {max_tokens}: raise update.max_tokens"
            )
        fresh = need[~laid[need]]
        if piece and held + len(fresh) > max_tokens:
            yield _of_targets(batch, np.sort(np.concatenate(piece)))
            laid[:], held, piece, fresh = False, 0, [], need
        laid[fresh] = True
        held += len(fresh)
        piece.append(targets[u])
    yield _of_targets(batch, np.sort(np.concatenate(piece)))


def _paths_to(layout: Layout, at: np.ndarray) -> np.ndarray:
    """Ascending indices of the tokens on the paths to `at`, ends included.

    A token before the first of `at` that is on any of the paths is on the path to the first, so that only that path and
    the stretch from it to the last are looked at, whatever the length of the batch.
    """
    if not len(at):
        return np.zeros(0, np.int64)
    ends = np.sort(at)
    low, high = int(ends[0]), int(ends[-1]) + 1
    here = np.arange(low, high)
    on_path = np.searchsorted(ends, layout.subtree_end[low:high]) > np.searchsorted(ends, here)
    above: list[int] = []
    while (low := int(layout.predictor[low])) >= 0:
        above.append(low)
    return np.concatenate([np.array(above[::-1], np.int64), here[on_path]])


def _copies(layout: Layout, at: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """[G] int64, how much of each step's path lies before `reach`, the tokens earlier steps needed."""
    fresh = layout.position[np.minimum(reach, len(layout) - 1)]
    copies: np.ndarray = np.where(at < reach, layout.position[at] + 1, fresh)
    return copies


def _of_targets(batch: Batch, which: np.ndarray) -> Batch:
    """The batch of some targets: their tokens are the paths to their predictors, nothing else."""
    keep = _paths_to(batch.layout, batch.at[which])
    offsets, allowed = _take_csr(batch.allowed_offsets, batch.allowed_ids, which)
    return Batch(
        layout=batch.layout.take(keep),
        ids=batch.ids[keep],
        sharing=batch.sharing,
        target=batch.target[which],
        at=np.searchsorted(keep, batch.at[which]),
        token=batch.token[which],
        step=batch.step[which],
        weight=batch.weight[which],
        allowed_offsets=offsets,
        allowed_ids=allowed,
    )


def _take_csr(offsets: np.ndarray, values: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slices `which` of a CSR array: new offsets and values."""
    size = offsets[which + 1] - offsets[which]  # [K]
    end = np.cumsum(size)
    index = np.repeat(offsets[which] - (end - size), size) + np.arange(size.sum())
    return np.append(0, end), values[index]
