"""Attention of packed tokens over the slot store, and the plan that says which token attends to which slot.

The packed input [1, M] holds the new tokens of many sequences, one chunk per sequence. The keys and values of all slots
are one tensor. Long chunks run one at a time, without padding and without a copy. Short chunks run as padded blocks. On
the CPU a block is a range of neighbouring slots, which are read in place. In measurements with 2-4 tokens per chunk,
such a block took half the time of a loop over the chunks, and with 32 tokens per chunk the same time. A block that
first gathers its slots was slower than the range and the loop. On a GPU a kernel launch costs more than a copy, so a
block gathers slots of similar length.

Letters: M packed tokens, R chunks (segments), H heads, G key-value heads, D head width, C capacity of a slot, r rows
of a block, Q queries and L keys of a padded row, m tokens of a block.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import AttentionInterface

NAME = "agentrl_slots"
_SHORT = {"cpu": 32, "cuda": 256}  # most tokens of a chunk that may join a block
# Fixed cost of a chunk that runs alone, and of a row of a block. The unit is the cost of one pair of a query and a key,
# so q queries with l keys cost q * l more. Fitted to 4 heads of width 32.
_ALONE, _ROW = 900, 300


class Segment(NamedTuple):
    """A chunk as positions: this forward pass computes the positions `start` to `end` - 1 of one slot."""

    slot: int
    start: int
    end: int


class Block(NamedTuple):
    """Short chunks as one padded batch.

    Attributes:
        slots: slots of the block's rows: a range, or [r] indices to gather.
        length: L.
        size: Q.
        query: [r * Q] indices into the block's m tokens, 0 on padding; None without padding.
        real: [m] indices of the tokens among the r * Q padded places; None without padding.
        mask: [r, 1, Q, L], added to the scores.
    """

    slots: slice | Tensor
    length: int
    size: int
    query: Tensor | None
    real: Tensor | None
    mask: Tensor


class Alone(NamedTuple):
    """A chunk that runs alone.

    Attributes:
        mask: [queries, keys], added to the scores; None if every query sees all keys, or if `triangle` is true.
        triangle: attention is plain causal, because the chunk begins at position 0.
    """

    mask: Tensor | None
    triangle: bool


class Plan(NamedTuple):
    """The plan of one forward pass.

    Attributes:
        sequence: [R] numbers of the segments, in the order of their tokens in the packed input.
        rows: [M] row of each packed token in the store, whose rows are slot * C + position.
        positions: [M] positions of the packed tokens.
        last: [R] packed index of each segment's last token, by number of segment.
        parts: the blocks and the chunks that run alone, in packed order.
        queries: number of packed tokens of each part.
        keys: sizes in rows of the pieces into which the store is split. Counted from 0, pieces 1, 3, 5, ... are the
            keys of the chunks that run alone.
    """

    sequence: list[int]
    rows: Tensor
    positions: Tensor
    last: Tensor
    parts: list[Block | Alone]
    queries: list[int]
    keys: list[int]


class Planner:
    """Makes plans for a store of `slots` slots of `capacity` tokens on a device.

    With `gather` a block gathers slots of similar length, else it is a range of neighbouring slots.
    """

    def __init__(self, slots: int, capacity: int, device: torch.device, dtype: torch.dtype, *, gather: bool) -> None:
        self.slots, self.capacity, self.device, self.dtype, self.gather = slots, capacity, device, dtype, gather

    def plan(self, segments: Sequence[Segment]) -> Plan:
        """The plan of one forward pass; segments in ascending order of slot, at most one per slot."""
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
            members = slice(done, done + len(group))
            done += len(group)
            queries.append(int(sizes[members].sum()))
            if len(group) > 1:
                parts.append(self._block(table[members], sizes[members]))
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
        """The block of n chunks, from `table` [n, 3] (slot, start, end) and `sizes` [n]."""
        base = int(table[0, 0])
        place = np.arange(len(table)) if self.gather else table[:, 0] - base  # [n], the chunk's row
        count, size, length = int(place[-1]) + 1, int(sizes.max()), int(table[:, 2].max())
        reach = np.zeros(
            (count, size), np.int64
        )  # [r, Q]; padding attends to key 0, because every query must attend to a key
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
    """Groups of segment numbers: one segment, or neighbours that are cheaper as one block over a range of slots."""
    groups: list[list[int]] = []
    rows = size = length = cost = 0  # of the group that may grow; 0 rows: no group may grow
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
    """Groups of segment numbers: each long segment alone, and short segments of similar size together.

    Two segments are of similar size if their numbers of queries have the same next power of two, and their numbers of
    keys too. All numbers of keys below 128 count as one number.
    """
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
    """Attention of the packed tokens under the running plan; the transformers attention interface calls it.

    Args:
        module: the attention layer.
        query: [1, H, M, D].
        key: [1, G, slots * C, D], all slots.
        value: as key.
        attention_mask: not used; the plan says which token attends to which.
        scaling: scale of the scores; None is 1 / sqrt(D).
        dropout: not used; an engine runs in evaluation mode.
        kwargs: further arguments of a layer. They are ignored, because `choose_runner` chooses the packed runner only
            for models whose packed forward pass gives the same logits as the plain one.

    Returns:
        Output [1, M, H, D], and None for the attention weights.
    """
    plan, slots = _running.plans[-1]
    grouped = query.shape[1] != key.shape[1]
    alone = iter(zip(torch.split(key, plan.keys, 2)[1::2], torch.split(value, plan.keys, 2)[1::2], strict=True))
    outputs: list[Tensor] = []
    for part, part_query in zip(plan.parts, torch.split(query, plan.queries, 2), strict=True):
        if isinstance(part, Alone):
            k, v = next(alone)
            share = grouped
            if share and part.mask is not None:
                k, v, share = _apart(k, v, query.shape[1])
            out = scaled_dot_product_attention(
                part_query, k, v, attn_mask=part.mask, is_causal=part.triangle, scale=scaling, enable_gqa=share
            )
        else:
            out = _attend_block(part, part_query, key, value, slots, scaling)
        outputs.append(out)
    joined = torch.cat(outputs, 2) if len(outputs) > 1 else outputs[0]  # [1, H, M, D]
    return joined.transpose(1, 2), None


def _attend_block(block: Block, query: Tensor, key: Tensor, value: Tensor, slots: int, scaling: float | None) -> Tensor:
    """[1, H, m, D] of a block's m tokens, from their queries [1, H, m, D] and all keys [1, G, slots * C, D]."""
    queries = query[0].transpose(0, 1)  # [m, H, D]
    queries = queries.contiguous() if block.query is None else queries.index_select(0, block.query)  # [r * Q, H, D]
    heads, width = queries.shape[1:]
    groups = key.shape[1]
    k, v = (_rows(x, block, slots) for x in (key, value))  # [r, G, L, D]
    if block.size == 1:  # the heads that share keys become the queries of one row
        q = queries.view(-1, groups, heads // groups, width)  # [r, G, H / G, D]
        out = scaled_dot_product_attention(q, k, v, attn_mask=block.mask, scale=scaling)
        out = out.reshape(-1, heads, width)  # [r, H, D]
    else:
        q = queries.view(-1, block.size, heads, width).transpose(1, 2)  # [r, H, Q, D]
        grouped = heads != groups
        if grouped:
            k, v, grouped = _apart(k, v, heads)
        out = scaled_dot_product_attention(q, k, v, attn_mask=block.mask, scale=scaling, enable_gqa=grouped)
        out = out.transpose(1, 2).reshape(-1, heads, width)  # [r * Q, H, D]
    if block.real is not None:
        out = out.index_select(0, block.real)
    return out.transpose(0, 1)[None]


def _apart(key: Tensor, value: Tensor, heads: int) -> tuple[Tensor, Tensor, bool]:
    """Keys and values for attention under a mask, and whether several heads still share them.

    On CUDA every head gets a copy of its own, because the fast kernels take no mask for heads that share keys.
    """
    if not key.is_cuda:
        return key, value, True
    times = heads // key.shape[1]
    return key.repeat_interleave(times, 1), value.repeat_interleave(times, 1), False


def _rows(spread: Tensor, block: Block, slots: int) -> Tensor:
    """[r, G, L, D] keys or values of the block's slots: a view of a range of slots, a copy for indices."""
    table = spread[0].transpose(0, 1).view(slots, -1, spread.shape[1], spread.shape[3])  # [slots, C, G, D]
    part = table[:, : block.length]
    rows = part[block.slots] if isinstance(block.slots, slice) else part.index_select(0, block.slots)
    return rows.transpose(1, 2)


class _Running(threading.local):
    """The plans in use, innermost last; each thread has a list of its own, because engines may run in many threads."""

    def __init__(self) -> None:
        self.plans: list[tuple[Plan, int]] = []


_running = _Running()
AttentionInterface.register(NAME, attend)


@contextmanager
def running(plan: Plan, slots: int, config: Any) -> Iterator[None]:
    """Inside this `with` block the model with this config attends by `plan` over a store of `slots` slots."""
    before = config._attn_implementation
    config._attn_implementation = NAME
    _running.plans.append((plan, slots))
    try:
        yield
    finally:
        _running.plans.pop()
        config._attn_implementation = before
