"""Attention of a packed row over the slot store, and the plan that says who looks where.

A packed row [1, M] holds the new tokens of many sequences; the keys and values of all slots come as one tensor. Long
chunks run one at a time, without padding and without a copy. Short ones run as padded blocks. On the CPU a block is a
range of neighbouring slots, read in place; measured at 2-4 tokens a sequence, a block takes half the time of a loop,
at 32 the same, and a block that first gathers its slots is slower than either. On a GPU a launch costs more than a
copy, so a block gathers slots of similar length.

Letters: M packed tokens, R sequences (segments), H heads, G key-value heads, D head width, C capacity of a slot, r rows
of a block, Q queries and L keys of a padded row.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import AttentionInterface

NAME = "agentrl_slots"
_SHORT = {"cpu": 32, "cuda": 256}  # tokens up to which a chunk may join a block
# Time of a chunk of q queries and l keys, in products q * l, fitted to 4 heads 32 wide: alone, and as a block's row.
_ALONE, _ROW = 900, 300


class Segment(NamedTuple):
    """Tokens `start` to `end` of one slot are computed in this forward."""

    slot: int
    start: int
    end: int


class Block(NamedTuple):
    """Short chunks as one padded batch.

    `slots` are its rows (a range, or [r] indices to gather); `length` is L, `size` is Q. `query` [r * Q] indexes the
    block's m tokens, 0 on padding; `real` [m] are their places in r * Q; both None without padding. `mask`
    [r, 1, Q, L] is added to the scores.
    """

    slots: slice | Tensor
    length: int
    size: int
    query: Tensor | None
    real: Tensor | None
    mask: Tensor


class Alone(NamedTuple):
    """A chunk by itself. `mask` [size, end] is added to the scores; None for all keys or the plain triangle."""

    mask: Tensor | None
    triangle: bool


class Plan(NamedTuple):
    """One forward.

    The tokens of segment `sequence[0]` come first in the packed row, then those of `sequence[1]` and so on. `rows` [M]
    are their places in the store, `positions` [M] their positions, and `last` [R] is the packed index of each
    segment's last token, by number of segment. `parts` say how attention runs: they take `queries` packed tokens each,
    and every second split of `keys` belongs to a chunk alone.
    """

    sequence: list[int]
    rows: Tensor
    positions: Tensor
    last: Tensor
    parts: list[Block | Alone]
    queries: list[int]
    keys: list[int]


class Planner:
    """Makes plans for a store of `slots` slots of `capacity` tokens on a device."""

    def __init__(self, slots: int, capacity: int, device: torch.device, dtype: torch.dtype, *, gather: bool) -> None:
        self.slots, self.capacity, self.device, self.dtype, self.gather = slots, capacity, device, dtype, gather

    def plan(self, segments: Sequence[Segment]) -> Plan:
        """The plan of one forward; segments in ascending order of slot, at most one a slot."""
        groups = _similar(segments) if self.gather else _neighbours(segments)
        sequence = [number for group in groups for number in group]
        table = np.array(segments)[sequence]  # [R, 3]
        sizes = table[:, 2] - table[:, 1]  # [R]
        ends = sizes.cumsum()  # [R]
        positions = np.arange(ends[-1]) - np.repeat(ends - sizes - table[:, 1], sizes)  # [M]
        rows = positions + np.repeat(table[:, 0] * self.capacity, sizes)  # [M]
        last = np.empty(len(segments), np.int64)  # [R]
        last[sequence] = ends - 1
        parts: list[Block | Alone] = []
        queries: list[int] = []
        keys: list[int] = []
        done = here = 0
        for group in groups:
            own = slice(done, done + len(group))
            done += len(group)
            queries.append(int(sizes[own].sum()))
            if len(group) > 1:
                parts.append(self._block(table[own], sizes[own]))
                continue
            slot, start, end = segments[group[0]]
            parts.append(self._alone(start, end))
            keys += (slot * self.capacity - here, end)
            here = slot * self.capacity + end
        keys.append(self.slots * self.capacity - here)
        return Plan(sequence, self._to(rows), self._to(positions), self._to(last), parts, queries, keys)

    def _to(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _alone(self, start: int, end: int) -> Alone:
        if start == 0 or end - start == 1:
            return Alone(None, end - start > 1)
        queries = torch.arange(start, end, device=self.device)[:, None]  # [size, 1]
        beyond = torch.arange(end, device=self.device) > queries  # [size, end]
        mask = torch.zeros(end - start, end, dtype=self.dtype, device=self.device)
        return Alone(mask.masked_fill_(beyond, -torch.inf), False)

    def _block(self, table: np.ndarray, sizes: np.ndarray) -> Block:
        """Chunks of `table` [n, 3] (slot, start, end) and `sizes` [n]."""
        base = int(table[0, 0])
        place = np.arange(len(table)) if self.gather else table[:, 0] - base  # [n], the chunk's row
        count, size, length = int(place[-1]) + 1, int(sizes.max()), int(table[:, 2].max())
        reach = np.zeros((count, size), np.int64)  # [r, Q]; padding sees key 0, because no row may see nothing
        offset = np.arange(sizes.sum()) - np.repeat(sizes.cumsum() - sizes, sizes)  # [m]
        real = np.repeat(place, sizes) * size + offset  # [m]
        reach.ravel()[real] = np.repeat(table[:, 1], sizes) + offset
        beyond = torch.arange(length, device=self.device) > self._to(reach)[:, None, :, None]  # [r, 1, Q, L]
        mask = torch.zeros(beyond.shape, dtype=self.dtype, device=self.device).masked_fill_(beyond, -torch.inf)
        slots = self._to(table[:, 0].copy()) if self.gather else slice(base, base + count)
        if len(real) == count * size:
            return Block(slots, length, size, None, None, mask)
        query = np.zeros(count * size, np.int64)  # [r * Q]
        query[real] = np.arange(len(real))
        return Block(slots, length, size, self._to(query), self._to(real), mask)


def _neighbours(segments: Sequence[Segment]) -> list[list[int]]:
    """Runs of segments that are cheaper as one block over a range of slots than apart; the rest alone."""
    groups: list[list[int]] = []
    rows = size = length = cost = 0  # of the run that is growing; no run while rows is 0
    for number, (slot, start, end) in enumerate(segments):
        q, alone = end - start, (end - start) * end + _ALONE
        if q > _SHORT["cpu"]:
            groups.append([number])
            rows = 0
            continue
        if rows:
            spanned = slot - segments[groups[-1][0]].slot + 1
            widest, longest = max(size, q), max(length, end)
            together = spanned * (widest * longest + _ROW)
            if together <= cost + alone:
                groups[-1].append(number)
                rows, size, length, cost = spanned, widest, longest, together
                continue
        groups.append([number])
        rows, size, length, cost = 1, q, end, alone
    return groups


def _similar(segments: Sequence[Segment]) -> list[list[int]]:
    """Short segments by the powers of two above their query and key counts; long ones alone, in order of slot."""
    groups: dict[tuple[int, int], list[int]] = {}
    for number, segment in enumerate(segments):
        size = segment.end - segment.start
        key = (size.bit_length(), max(segment.end, 64).bit_length()) if size <= _SHORT["cuda"] else (-1, number)
        groups.setdefault(key, []).append(number)
    return sorted(groups.values(), key=lambda g: g[0])


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of a packed row under the running plan; the transformers attention interface calls it.

    Args:
        module: the attention layer.
        query: [1, H, M, D].
        key: [1, G, slots * C, D], all slots.
        value: as key.
        attention_mask: none; the plan knows who looks where.
        scaling: of the scores; 1 / sqrt(D) if None.
        dropout: none; an engine runs in evaluation mode.
        kwargs: what else a layer passes; ignored here, because `agentrl.engines.support` admits only models whose
            packed forward equals their plain one.

    Returns:
        [1, M, H, D], and no weights.
    """
    plan, slots = _running[-1]
    grouped = query.shape[1] != key.shape[1]
    alone = iter(zip(torch.split(key, plan.keys, 2)[1::2], torch.split(value, plan.keys, 2)[1::2], strict=True))
    done: list[Tensor] = []
    for part, own in zip(plan.parts, torch.split(query, plan.queries, 2), strict=True):
        if isinstance(part, Alone):
            k, v = next(alone)
            share = grouped
            if share and part.mask is not None:
                k, v, share = _apart(k, v, query.shape[1])
            out = scaled_dot_product_attention(
                own, k, v, attn_mask=part.mask, is_causal=part.triangle, scale=scaling, enable_gqa=share
            )
        else:
            out = _attend_block(part, own, key, value, slots, scaling)
        done.append(out)
    joined = torch.cat(done, 2) if len(done) > 1 else done[0]  # [1, H, M, D]
    return joined.transpose(1, 2), None


def _attend_block(block: Block, query: Tensor, key: Tensor, value: Tensor, slots: int, scaling: float | None) -> Tensor:
    """[1, H, m, D] of a block's m tokens, from their queries [1, H, m, D] and all keys [1, G, slots * C, D]."""
    given = query[0].transpose(0, 1)  # [m, H, D]
    given = given.contiguous() if block.query is None else given.index_select(0, block.query)  # [r * Q, H, D]
    heads, width = given.shape[1:]
    groups = key.shape[1]
    k, v = (_rows(x, block, slots) for x in (key, value))  # [r, G, L, D]
    if block.size == 1:  # the heads that share keys become the queries of one row
        q = given.view(-1, groups, heads // groups, width)  # [r, G, H / G, D]
        out = scaled_dot_product_attention(q, k, v, attn_mask=block.mask, scale=scaling)
        out = out.reshape(-1, heads, width)  # [r, H, D]
    else:
        q = given.view(-1, block.size, heads, width).transpose(1, 2)  # [r, H, Q, D]
        grouped = heads != groups
        if grouped:
            k, v, grouped = _apart(k, v, heads)
        out = scaled_dot_product_attention(q, k, v, attn_mask=block.mask, scale=scaling, enable_gqa=grouped)
        out = out.transpose(1, 2).reshape(-1, heads, width)  # [r * Q, H, D]
    if block.real is not None:
        out = out.index_select(0, block.real)
    return out.transpose(0, 1)[None]


def _apart(key: Tensor, value: Tensor, heads: int) -> tuple[Tensor, Tensor, bool]:
    """Keys and values for attention under a mask, and whether heads still share them: the fast CUDA kernels take a mask
    only where they do not."""
    if not key.is_cuda:
        return key, value, True
    times = heads // key.shape[1]
    return key.repeat_interleave(times, 1), value.repeat_interleave(times, 1), False


def _rows(spread: Tensor, block: Block, slots: int) -> Tensor:
    """[r, G, L, D] of the block's slots: a view for a range, a copy for indices."""
    table = spread[0].transpose(0, 1).view(slots, -1, spread.shape[1], spread.shape[3])  # [slots, C, G, D]
    part = table[:, : block.length]
    chosen = part[block.slots] if isinstance(block.slots, slice) else part.index_select(0, block.slots)
    return chosen.transpose(1, 2)


_running: list[tuple[Plan, int]] = []
AttentionInterface.register(NAME, attend)


@contextmanager
def running(plan: Plan, slots: int, config: Any) -> Iterator[None]:
    """Within it, the model of this config attends by this plan over a store of `slots` slots."""
    before = config._attn_implementation
    config._attn_implementation = NAME
    _running.append((plan, slots))
    try:
        yield
    finally:
        _running.pop()
        config._attn_implementation = before
