"""Keys and values of all slots in one tensor, which takes the place of the model's own cache.

Letters: M packed tokens, G key-value heads, D head width, C capacity of a slot.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache


class Store(Cache):  # type: ignore[misc]
    """The cache object of a packed forward pass.

    `update` writes the new keys and values to the rows that the plan of the forward pass names. It returns views of all
    slots, and `agentrl.engines.hf.slot_attention` selects from these views.

    Args:
        layers: number of attention layers.
        slots: number of slots.
        limit: largest number of tokens per slot. The memory of all slots grows with the longest sequence so far, up to
            this limit.
    """

    def __init__(self, layers: int, slots: int, limit: int) -> None:
        super().__init__(layers=[])
        self.depth, self.slots, self.limit = layers, slots, limit
        self.capacity = 0  # C
        self.least = 256  # tokens per slot that the first `reserve` makes room for
        self.rows: Tensor | None = None  # [M], `Plan.rows` of the forward pass
        self.kv: Tensor | None = None  # [2 * layers, slots * C, G, D]
        self._flat: list[Tensor] = []
        self._spread: list[Tensor] = []

    def reserve(self, tokens: int) -> None:
        """Make room for this many tokens per slot; if `capacity` changes, earlier plans are no longer valid."""
        if tokens <= self.capacity:
            return
        capacity = min(self.limit, max(tokens, 2 * self.capacity, self.least))
        if self.kv is not None:
            heads, width = self.kv.shape[2:]
            old = self.kv.view(2 * self.depth, self.slots, self.capacity, heads, width)
            new = _zeros((2 * self.depth, self.slots, capacity, heads, width), old)
            new[:, :, : self.capacity] = old
            self._adopt(new.view(2 * self.depth, -1, heads, width))
        self.capacity = capacity

    def _adopt(self, kv: Tensor) -> None:
        self.kv = kv
        self._flat = list(kv.unbind(0))  # 2 * layers of [slots * C, G, D]
        self._spread = [t[None].transpose(1, 2) for t in self._flat]  # 2 * layers of [1, G, slots * C, D]

    def drop(self) -> None:
        """Give back the memory of all slots. The next `reserve` takes as much again, so that nothing grows twice."""
        self.least = max(self.least, self.capacity)
        self.capacity, self.rows, self.kv = 0, None, None
        self._flat, self._spread = [], []

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` tokens of slot `source` to slot `target`, in all layers at once."""
        assert self.kv is not None
        a, b = source * self.capacity, target * self.capacity
        self.kv[:, b : b + tokens] = self.kv[:, a : a + tokens]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write keys and values [1, G, M, D] to their rows; returns all keys and values [1, G, slots * C, D]."""
        if self.kv is None:
            shape = (2 * self.depth, self.slots * self.capacity, key_states.shape[1], key_states.shape[3])
            self._adopt(_zeros(shape, key_states))
        assert self.rows is not None
        self._flat[2 * layer_idx].index_copy_(0, self.rows, key_states[0].transpose(0, 1))
        self._flat[2 * layer_idx + 1].index_copy_(0, self.rows, value_states[0].transpose(0, 1))
        return self._spread[2 * layer_idx], self._spread[2 * layer_idx + 1]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Always 0, because each forward pass gets the positions of its tokens, and the model need not count them."""
        return 0


def _zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    """A tensor of zeros with the type and device of another tensor.

    Zeros are needed, because a padded block multiplies unused values by 0, and 0 * nan is nan. On the CPU the zeros are
    pages that the system gives a process without memory: a page takes memory when it is written, so slots that are not
    used take none.
    """
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    return torch.from_numpy(np.zeros(math.prod(shape) * like.itemsize, np.uint8)).view(like.dtype).view(*shape)
