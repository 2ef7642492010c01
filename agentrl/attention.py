"""Attention over a packed trie, registered with transformers as "agentrl_tree".

Any causal language model that calls transformers' attention interface takes one packed row [1, T] this way: token q
sees kv iff kv <= q < subtree_end[kv]. On CUDA this is FlexAttention under a block mask; elsewhere one call of scaled
dot-product attention per unbranched run of the trie, over the keys of its path (on a CPU faster than padded buckets
of trees and than dense masks). Everything else in the model works on the flat tokens, without padding.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from agentrl.layout import Layout

NAME = "agentrl_tree"
BLOCK = 128  # tokens of a FlexAttention block


@dataclass(frozen=True, kw_only=True, eq=False)
class TreePlan:
    """What the layers need to know of a layout, made once a batch.

    Attributes:
        runs: lengths of the unbranched stretches, in packed order.
        above: for each run the runs of its path, root first.
        below_diagonal: additive mask with 0 on and below the diagonal, a window of which serves every run that has a
            path above it; None if none has.
        block_mask: for FlexAttention; then the other fields are empty.
    """

    runs: list[int]
    above: list[list[int]]
    below_diagonal: Tensor | None = None
    block_mask: BlockMask | None = None


def make_plan(layout: Layout, device: torch.device, dtype: torch.dtype) -> TreePlan:
    """The plan of a layout on a device. On CUDA the layout's length must be a multiple of `BLOCK`."""
    if device.type == "cuda":
        return TreePlan(runs=[], above=[], block_mask=block_mask(layout.subtree_end, device))
    starts = layout.run_starts()  # [R]
    runs = np.diff(starts, append=len(layout)).tolist()
    parent = layout.predictor[starts]  # [R]
    run_above = np.where(parent >= 0, np.searchsorted(starts, parent, side="right") - 1, -1).tolist()  # [R]
    above: list[list[int]] = []
    for run in run_above:
        above.append([*above[run], run] if run >= 0 else [])
    longest = max((runs[i] + sum(runs[j] for j in path) for i, path in enumerate(above) if path), default=0)
    mask = None
    if longest:
        mask = torch.full((longest, longest), -torch.inf, dtype=dtype, device=device).triu_(1)
    return TreePlan(runs=runs, above=above, below_diagonal=mask)


def block_mask(subtree_end: np.ndarray, device: torch.device) -> BlockMask:
    """FlexAttention's block mask of a layout, without ever making a [T, T] mask.

    Args:
        subtree_end: [T] with T a multiple of `BLOCK`.
    """
    n = len(subtree_end) // BLOCK
    assert n * BLOCK == len(subtree_end), "pad the layout to whole blocks first"
    blocks = subtree_end.reshape(n, BLOCK)
    first = np.arange(n)[:, None] * BLOCK  # [n, 1] first query of each block
    earlier = np.tri(n, n, -1, dtype=bool)  # [n, n] the key block lies wholly before the query block
    full = earlier & (blocks.min(1)[None, :] >= first + BLOCK)  # [n, n]
    partial = (earlier & (blocks.max(1)[None, :] > first) & ~full) | np.eye(n, dtype=bool)
    end = torch.from_numpy(subtree_end).to(device)

    def sees(batch: Tensor, head: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        return (kv <= q) & (q < end[kv])

    some, some_listed = _block_lists(partial, device)
    every, every_listed = _block_lists(full, device)
    mask: BlockMask = BlockMask.from_kv_blocks(some, some_listed, every, every_listed, BLOCK_SIZE=BLOCK, mask_mod=sees)
    return mask


def _block_lists(table: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
    """How many key blocks each query block sees [1, 1, n], and their numbers first in each row [1, 1, n, n]."""
    order = np.argsort(~table, axis=1, kind="stable")
    count, listed = (torch.from_numpy(x.astype(np.int32)).to(device) for x in (table.sum(1), order))
    return count[None, None], listed[None, None]


def tree_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    tree_plan: TreePlan | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Transformers' attention interface: query [1, H, T, D], key and value [1, H', T, D] -> [1, T, H, D].

    Raises:
        ValueError: the model asks for something that a trie cannot be given (see `agentrl.forward`, which then packs
            one path a row).
    """
    extra = [name for name in ("softcap", "s_aux", "position_bias", "sliding_window") if options.get(name)]
    if extra or tree_plan is None or dropout:
        why = (
            "the model does not pass tree_plan on to its layers"
            if tree_plan is None
            else f"it uses {extra or 'dropout'}"
        )
        raise ValueError(
            f"{type(module).__name__} cannot attend over a tree: {why}; make the learner with sharing='paths'"
        )
    if tree_plan.block_mask is not None:
        grouped = query.shape[1] != key.shape[1]
        out = _flex()(query, key, value, block_mask=tree_plan.block_mask, scale=scaling, enable_gqa=grouped)
        return out.transpose(1, 2), None
    return _by_runs(query, key, value, tree_plan, scaling).transpose(1, 2), None


def _by_runs(query: Tensor, key: Tensor, value: Tensor, plan: TreePlan, scaling: float | None) -> Tensor:
    """One attention call a run, over the keys of its path: [1, H, T, D]."""
    # split, because its backward is one concatenation; slices would each add a zero-filled gradient of all T tokens.
    queries, keys, values = (torch.split(x, plan.runs, dim=2) for x in (query, key, value))
    grouped = query.shape[1] != key.shape[1]
    outs: list[Tensor] = []
    for i, path in enumerate(plan.above):
        k, v = keys[i], values[i]
        mask = None
        if path:
            assert plan.below_diagonal is not None
            k, v = torch.cat([*(keys[j] for j in path), k], 2), torch.cat([*(values[j] for j in path), v], 2)
            mask = plan.below_diagonal[k.shape[2] - plan.runs[i] : k.shape[2], : k.shape[2]]
        outs.append(
            scaled_dot_product_attention(
                queries[i], k, v, attn_mask=mask, is_causal=not path, scale=scaling, enable_gqa=grouped
            )
        )
    return torch.cat(outs, 2)


_compiled: list[Callable[..., Tensor]] = []


def _flex() -> Callable[..., Tensor]:
    """FlexAttention, compiled once a process: uncompiled it would build the [T, T] scores."""
    if not _compiled:
        _compiled.append(torch.compile(flex_attention))
    return _compiled[0]


AttentionInterface.register(NAME, tree_attention)


@contextmanager
def attending_over_trees(model: nn.Module) -> Iterator[None]:
    """Let a transformers model use `tree_attention`; afterwards it attends as before.

    With gradient checkpointing the layers run again in the backward pass, so that belongs inside as well.
    """
    configs: dict[int, Any] = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}
    before = {i: c._attn_implementation for i, c in configs.items() if hasattr(c, "_attn_implementation")}
    try:
        for i in before:
            configs[i]._attn_implementation_internal = NAME
        yield
    finally:
        for i, name in before.items():
            configs[i]._attn_implementation_internal = name
