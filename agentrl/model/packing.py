"""Pack rows of a step graph into the batch that a model is trained on, and cut the batch into micro-batches.

Letters: N rows, R rows to train, S tokens of the graph, T packed tokens, K targets (the tokens that are trained).

By default the targets are the *decisions*: the sampled tokens that had an alternative. A token whose allowed set has
one member has log-probability 0 for any weights, so it has no loss and does not count in any mean over tokens.
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
    """Input of one forward and backward pass. Losses of micro-batches are summed, never averaged.

    Attributes:
        layout: where the T packed tokens lie, and which token may attend to which.
        ids: [T] int64 token ids of the packed tokens.
        sharing: "tree", or "paths" for models whose layers need every path as a sequence of its own.
        target: [K] int64 token ids of the targets.
        at: [K] int64 packed index of the token whose hidden state predicts the target. At a fork one hidden state
            predicts several targets.
        source: [K] int64 index of the target in the graph's token table.
        row: [K] int64 row of the graph that the target belongs to.
        weight: [K] float64 aggregation weight: the factor of the target in the loss, already divided by the
            denominator of the whole mini-batch.
        allowed_offsets: [K+1] int64 into `allowed_ids`; an empty slice means unrestricted.
        allowed_ids: int64 token ids, ascending in each slice.
    """

    layout: Layout
    ids: np.ndarray
    sharing: Sharing
    target: np.ndarray
    at: np.ndarray
    source: np.ndarray
    row: np.ndarray
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
    """One batch of all targets of `rows`.

    Args:
        tokens: the token table of the graph.
        rows: [R] int64, ascending, the rows to train.
        weight: [S] aggregation weight of each token (see `Batch`); only the weights of the targets are used.
        sharing: "paths" lays out every root-to-leaf path as a sequence of its own.
        min_shared: prompts merge if at least this many of their leading tokens are equal.
        targets: [S] bool, the targets; None for the decisions. A critic, for example, names the tokens before which it
            reads a value.

    Raises:
        ValueError: a target has no token before it.
    """
    layout = lay_out(tokens, rows, min_shared) if sharing == "tree" else unshared(tokens, rows)
    in_rows = np.zeros(len(tokens.context), bool)  # [N]
    in_rows[rows] = True
    row = token_rows(tokens)  # [S]
    is_target = (decisions(tokens) if targets is None else targets) & in_rows[row]  # [S]
    place = np.flatnonzero(is_target[layout.source])  # packed index of each target, in pre-order
    if sharing == "paths":
        place = _on_one_path(layout, place, row)
    source = layout.source[place]  # [K]
    at = layout.predictor[place]  # [K]
    if (at < 0).any():
        raise ValueError(
            f"row {row[source[at < 0][0]]} begins with a sampled token, and no token before it predicts it: "
            "give the prompt at least one token, such as a beginning-of-text token"
        )
    offsets, allowed = _take_csr(tokens.allowed_offsets, tokens.allowed_ids, source)
    batch = Batch(
        layout=layout,
        ids=tokens.ids[layout.source],
        sharing=sharing,
        target=tokens.ids[source],
        at=at,
        source=source,
        row=row[source],
        weight=weight[source],
        allowed_offsets=offsets,
        allowed_ids=allowed,
    )
    return _of_targets(batch, np.arange(len(source)))


def _on_one_path(layout: Layout, place: np.ndarray, row: np.ndarray) -> np.ndarray:
    """The places [K] of each target on one path: the first path that has all targets of the target's row.

    Args:
        layout: layout of whole paths (`unshared`).
        place: packed indices of the targets, one index per path that contains the target.
        row: [S] row of each token of the graph.
    """
    path = np.cumsum(layout.position == 0)[place]  # [places]
    owner = row[layout.source[place]]  # [places]
    last = np.zeros(len(row), np.int64)  # [rows] the row's last target
    np.maximum.at(last, owner, layout.source[place])
    complete = layout.source[place] == last[owner]  # [places]
    first_path = np.full(len(row), np.iinfo(np.int64).max)  # [rows]
    np.minimum.at(first_path, owner[complete], path[complete])
    places: np.ndarray = place[path == first_path[owner]]
    return places


def microbatches(batch: Batch, max_tokens: int, bundle: np.ndarray | None = None) -> Iterator[Batch]:
    """Cut a batch between rows so that no micro-batch has more than `max_tokens` packed tokens.

    Targets are taken in pre-order. A micro-batch is a contiguous range of targets, with the paths to them. If a cut
    separates a subtree from its ancestors, the micro-batch of the subtree repeats the path of the ancestors, without
    their targets. The function cuts where the repeated path is short. The targets of one row lie side by side (if a
    branch leaves a row in its middle, the rest of the row is laid out before the branch). They stay in one micro-batch,
    because losses with one importance ratio per turn need them together.

    Args:
        batch: the batch of one mini-batch.
        max_tokens: largest number of packed tokens per micro-batch.
        bundle: [K] int64; targets with equal numbers stay in one micro-batch (for losses that need all tokens of an
            episode at once).

    Raises:
        ValueError: a single path, or a bundle, is longer than `max_tokens`.
    """
    if len(batch) <= max_tokens:
        if len(batch.target):
            yield batch
        return
    if bundle is not None:
        yield from _in_bundles(batch, max_tokens, bundle)
        return
    first = np.flatnonzero(np.diff(batch.row, prepend=-1))  # [G] the first target of each row that has targets
    assert len(first) == len(np.unique(batch.row)), "a row's targets must lie side by side"
    longest = int(batch.layout.position[batch.at].max()) + 1
    if longest > max_tokens:
        raise ValueError(
            f"a path has {longest} tokens, the limit of a micro-batch is {max_tokens}: "
            "raise update.max_tokens or shorten the episodes"
        )
    reach = np.append(
        0, np.maximum.accumulate(np.maximum.reduceat(batch.at, first)) + 1
    )  # [G+1] packed index after the last token that earlier rows need
    copies = _copies(batch.layout, batch.at[first], reach[:-1])  # [G]
    start = 0
    while start < len(first):
        cost = (
            copies[start] + reach[start + 1 :] - reach[start]
        )  # packed tokens of the micro-batch if it ends after row `start`, after the next row, and so on
        fits = int(np.searchsorted(cost, max_tokens, side="right"))
        stop = start + fits
        if stop < len(first):
            # Micro-batches below a quarter of the limit cost more in launch overhead than they save.
            worth = int(np.searchsorted(cost, max_tokens // 4))
            options = np.arange(min(start + worth + 1, stop), stop + 1)
            stop = int(options[len(options) - 1 - np.argmin(copies[options][::-1])])
        end = first[stop] if stop < len(first) else len(batch.target)
        yield _of_targets(batch, np.arange(first[start], end))
        start = stop


def _in_bundles(batch: Batch, max_tokens: int, bundle: np.ndarray) -> Iterator[Batch]:
    """Micro-batches of whole bundles, in the order of the bundles' first targets; `bundle` is as in `microbatches`."""
    _, first, key, size = np.unique(bundle, return_index=True, return_inverse=True, return_counts=True)
    targets = np.split(np.argsort(key, kind="stable"), np.cumsum(size)[:-1])  # the targets of each bundle, ascending
    in_piece = np.zeros(len(batch), bool)  # [T] is the token in the micro-batch?
    n_tokens = 0
    piece: list[np.ndarray] = []
    for b in np.argsort(first, kind="stable").tolist():
        need = _paths_to(batch.layout, batch.at[targets[b]])
        if len(need) > max_tokens:
            raise ValueError(
                f"an episode (on a branched graph: a tree) has {len(need)} packed tokens, which its loss needs at "
                f"once, and the limit of a micro-batch is {max_tokens}: raise update.max_tokens or shorten the episodes"
            )
        fresh = need[~in_piece[need]]
        if piece and n_tokens + len(fresh) > max_tokens:
            yield _of_targets(batch, np.sort(np.concatenate(piece)))
            in_piece[:], n_tokens, piece, fresh = False, 0, [], need
        in_piece[fresh] = True
        n_tokens += len(fresh)
        piece.append(targets[b])
    yield _of_targets(batch, np.sort(np.concatenate(piece)))


def _paths_to(layout: Layout, at: np.ndarray) -> np.ndarray:
    """Ascending packed indices of the tokens on the paths to the packed indices `at`, which are included.

    A token before the smallest index of `at` is on one of the paths only if it is on the path to that smallest index.
    Only that path and the range from the smallest to the largest index are therefore searched, not the whole batch.
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
    """[G] int64, how many tokens of each row's path lie before `reach` [G], the end of the tokens of earlier rows."""
    fresh = layout.position[np.minimum(reach, len(layout) - 1)]
    copies: np.ndarray = np.where(at < reach, layout.position[at] + 1, fresh)
    return copies


def _of_targets(batch: Batch, which: np.ndarray) -> Batch:
    """The batch of the targets `which`; its packed tokens are those on the paths to the targets' predictors."""
    keep = _paths_to(batch.layout, batch.at[which])
    offsets, allowed = _take_csr(batch.allowed_offsets, batch.allowed_ids, which)
    return Batch(
        layout=batch.layout.take(keep),
        ids=batch.ids[keep],
        sharing=batch.sharing,
        target=batch.target[which],
        at=np.searchsorted(keep, batch.at[which]),
        source=batch.source[which],
        row=batch.row[which],
        weight=batch.weight[which],
        allowed_offsets=offsets,
        allowed_ids=allowed,
    )


def _take_csr(offsets: np.ndarray, values: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """New offsets and values of the slices `which` of a ragged array; `offsets` and `values` are its CSR form."""
    size = offsets[which + 1] - offsets[which]  # [K]
    end = np.cumsum(size)
    index = np.repeat(offsets[which] - (end - size), size) + np.arange(size.sum())
    return np.append(0, end), values[index]
