"""Keys and values of all slots in one tensor, and attention over them.

A forward is one packed row [1, M] of the new tokens of many sequences. The store stands in for the model's own cache:
`update` writes the new keys and values to their places and hands back views of everything; the registered attention
function then runs each sequence on its own slice. On the CPU that is a loop, with no padding and no copy (measured:
about 10 us a sequence and layer, within 5 us of a padded batch). On a GPU, where a launch costs more than the padding,
sequences of similar length go as one padded batch.

Letters: M packed tokens, H heads, G key-value heads, D head width, C capacity of a slot, R sequences.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.cache_utils import Cache
from transformers.modeling_utils import AttentionInterface

ATTENTION = "agentrl_slots"
_STAIRS = 64  # chunks up to this long take their causal mask as a view of one small table


class Segment(NamedTuple):
    """Tokens `start` to `end` of one slot are computed in this forward."""

    slot: int
    start: int
    end: int


class Bucket(NamedTuple):
    """Sequences of similar length as one padded batch.

    `query` [R, Q] indexes the packed row (0 on padding), `real` [R, Q] marks real queries, `slot` [R], `length` is the
    number of keys, `mask` [R, 1, Q, length] is True where a query may look.
    """

    query: Tensor
    real: Tensor
    slot: Tensor
    length: int
    mask: Tensor


class Plan(NamedTuple):
    """Where the packed tokens of one forward go.

    `rows` [M] are their places in the store, `positions` [M] their positions, `last` [R] the packed index of each
    segment's last token. `queries` and `keys` are split sizes; every second key split is a segment's keys.
    """

    rows: Tensor
    positions: Tensor
    last: Tensor
    queries: list[int]
    keys: list[int]
    masks: list[Tensor | None]
    buckets: list[Bucket]


class Store(Cache):  # type: ignore[misc]
    """The cache object a packed forward is given.

    Args:
        layers: number of attention layers.
        slots: number of slots.
        capacity: most tokens a slot holds; memory grows towards it as prompts ask for it.
        device: where the tensors live.
        padded: run sequences as padded batches instead of one at a time.
    """

    def __init__(self, layers: int, slots: int, capacity: int, device: torch.device, *, padded: bool) -> None:
        super().__init__(layers=[])
        self.slots, self.limit, self.device, self.padded = slots, capacity, device, padded
        self.capacity = 0  # C
        self.depth = layers
        self.kv: Tensor | None = None  # [2 * layers, slots * C, G, D]
        self.plan: Plan | None = None
        self._flat: list[Tensor] = []
        self._spread: list[Tensor] = []
        self._stairs: Tensor | None = None

    def reserve(self, tokens: int) -> None:
        """Make room for this many tokens a slot; call before `make_plan`."""
        if tokens <= self.capacity:
            return
        capacity = min(self.limit, max(tokens, 2 * self.capacity, 256))
        if self.kv is not None:
            _, _, heads, width = self.kv.shape
            old = self.kv.view(2 * self.depth, self.slots, self.capacity, heads, width)
            # Zeros, not empty: a padded batch multiplies unused values by 0, and 0 * nan is nan.
            new = old.new_zeros(2 * self.depth, self.slots, capacity, heads, width)
            new[:, :, : self.capacity] = old
            self._adopt(new.view(2 * self.depth, -1, heads, width))
        self.capacity = capacity

    def _adopt(self, kv: Tensor) -> None:
        self.kv = kv
        self._flat = list(kv.unbind(0))  # 2 * layers of [slots * C, G, D]
        self._spread = [t[None].transpose(1, 2) for t in self._flat]  # 2 * layers of [1, G, slots * C, D]

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Copy the first tokens of one slot to another, all layers at once."""
        assert self.kv is not None
        a, b = source * self.capacity, target * self.capacity
        self.kv[:, b : b + tokens] = self.kv[:, a : a + tokens]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write [1, G, M, D] keys and values to their rows; returns all slots' as [1, G, slots * C, D]."""
        if self.kv is None:
            shape = (2 * self.depth, self.slots * self.capacity, key_states.shape[1], key_states.shape[3])
            self._adopt(key_states.new_zeros(shape))
        assert self.plan is not None
        rows = self.plan.rows
        self._flat[2 * layer_idx].index_copy_(0, rows, key_states[0].transpose(0, 1))
        self._flat[2 * layer_idx + 1].index_copy_(0, rows, value_states[0].transpose(0, 1))
        return self._spread[2 * layer_idx], self._spread[2 * layer_idx + 1]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Zero: positions are given, never counted by the model."""
        return 0

    def make_plan(self, segments: Sequence[Segment], dtype: torch.dtype) -> Plan:
        """The plan of one forward.

        Args:
            segments: in ascending order of slot, at most one a slot.
            dtype: of the model's activations (a CPU mask is added in it).
        """
        capacity = self.capacity
        starts = np.array([s.start for s in segments])  # [R]
        sizes = np.array([s.end - s.start for s in segments])  # [R]
        slots = np.array([s.slot for s in segments])  # [R]
        ends = sizes.cumsum()  # [R]
        first = ends - sizes  # [R]
        positions = np.arange(ends[-1]) - np.repeat(first - starts, sizes)  # [M]
        rows = positions + np.repeat(slots * capacity, sizes)  # [M]
        queries: list[int] = []
        keys: list[int] = []
        masks: list[Tensor | None] = []
        buckets: list[Bucket] = []
        if self.padded:
            buckets = self._buckets(slots, starts, sizes, first)
        else:
            here = 0
            for slot, start, end in segments:
                keys += (slot * capacity - here, end)
                here = slot * capacity + end
                masks.append(self._mask(start, end, dtype))
            keys.append(self.slots * capacity - here)
            queries = sizes.tolist()
        return Plan(self._to(rows), self._to(positions), self._to(ends - 1), queries, keys, masks, buckets)

    def _to(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _mask(self, start: int, end: int, dtype: torch.dtype) -> Tensor | None:
        """[end - start, end] additive mask of a chunk; None where attention's own rule is right (see `attend`)."""
        size = end - start
        if size == 1 or start == 0:
            return None
        if size > _STAIRS:
            return torch.zeros(size, end, dtype=dtype).masked_fill_(
                torch.arange(end) > torch.arange(start, end)[:, None], -torch.inf
            )
        if self._stairs is None or self._stairs.dtype != dtype:
            # Row i, column j is open iff j <= limit + i: shifting the columns by limit - start makes it j <= start + i.
            self._stairs = torch.zeros(_STAIRS, self.limit + _STAIRS, dtype=dtype)
            self._stairs[:, self.limit :].masked_fill_(
                torch.ones(_STAIRS, _STAIRS, dtype=torch.bool).triu(1), -torch.inf
            )
        shift = self.limit - start
        return self._stairs[:size, shift : shift + end]

    def _buckets(self, slots: np.ndarray, starts: np.ndarray, sizes: np.ndarray, first: np.ndarray) -> list[Bucket]:
        """Sequences grouped by the power of two above their query and key counts."""
        lengths = starts + sizes  # [R]
        kind = np.stack([np.ceil(np.log2(sizes)), np.ceil(np.log2(np.maximum(lengths, 64)))])  # [2, R]
        buckets = []
        for wanted in np.unique(kind, axis=1).T:
            of = np.flatnonzero((kind == wanted[:, None]).all(0))  # [r]
            size, length = int(sizes[of].max()), int(lengths[of].max())
            offset = np.arange(size)
            real = offset < sizes[of, None]  # [r, Q]
            query = np.where(real, first[of, None] + offset, 0)  # [r, Q]
            reach = np.where(real, starts[of, None] + offset, 0)  # [r, Q]; padding looks at key 0, so no row is empty
            mask = np.arange(length) <= reach[:, None, :, None]  # [r, 1, Q, length]
            arrays = (query, real, slots[of], mask)
            query_t, real_t, slot_t, mask_t = (self._to(a) for a in arrays)
            buckets.append(Bucket(query_t, real_t, slot_t, length, mask_t))
        return buckets


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
    """Attention of a packed row; the transformers attention interface calls it.

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
    store = _active[-1]
    plan = store.plan
    assert plan is not None
    grouped = query.shape[1] != key.shape[1]
    if store.padded:
        return _attend_padded(store, plan, query, key, value, scaling, grouped), None
    keys = torch.split(key, plan.keys, 2)[1::2]
    values = torch.split(value, plan.keys, 2)[1::2]
    rows = [
        # A fresh chunk (no mask, more than one query) is square, so is_causal is the right triangle.
        scaled_dot_product_attention(
            q, k, v, attn_mask=m, is_causal=m is None and q.shape[2] > 1, scale=scaling, enable_gqa=grouped
        )
        for q, k, v, m in zip(torch.split(query, plan.queries, 2), keys, values, plan.masks, strict=True)
    ]
    return torch.cat(rows, 2).transpose(1, 2), None


def _attend_padded(
    store: Store, plan: Plan, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, grouped: bool
) -> Tensor:
    """[1, M, H, D], one padded batch a bucket."""
    packed = query[0].transpose(0, 1)  # [M, H, D]
    out = torch.empty_like(packed)
    heads, width = key.shape[1], key.shape[3]
    keys = key[0].transpose(0, 1).view(store.slots, store.capacity, heads, width)
    values = value[0].transpose(0, 1).view(store.slots, store.capacity, heads, width)
    for bucket in plan.buckets:
        q = packed[bucket.query].transpose(1, 2)  # [r, H, Q, D]
        k = keys[:, : bucket.length].index_select(0, bucket.slot).transpose(1, 2)  # [r, G, length, D]
        v = values[:, : bucket.length].index_select(0, bucket.slot).transpose(1, 2)
        if grouped:  # the memory-efficient CUDA kernels take a mask only without grouped heads
            k = k.repeat_interleave(q.shape[1] // heads, 1)
            v = v.repeat_interleave(q.shape[1] // heads, 1)
        done = scaled_dot_product_attention(q, k, v, attn_mask=bucket.mask, scale=scaling)
        out[bucket.query[bucket.real]] = done.transpose(1, 2)[bucket.real]
    return out[None]


_active: list[Store] = []
AttentionInterface.register(ATTENTION, attend)


class packed_forward:
    """Within it, the model's attention runs over this store under this plan."""

    def __init__(self, store: Store, plan: Plan, config: Any) -> None:
        self.store, self.config, self.store.plan = store, config, plan

    def __enter__(self) -> None:
        self.before = self.config._attn_implementation
        self.config._attn_implementation = ATTENTION
        _active.append(self.store)

    def __exit__(self, *exc: object) -> None:
        _active.pop()
        self.config._attn_implementation = self.before
        self.store.plan = None
