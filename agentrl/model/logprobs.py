"""Log-probabilities and entropies of targets, under each token's allowed set and the sampling temperature.

Logits are float32 or wider from the matrix product on, whatever the weights' type. Where [K, V] logits would
be large they are made in chunks, and made again in the backward pass, so that they are never kept.

Letters: K targets, V vocabulary, A the largest allowed set of a chunk, d width of the hidden states.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CHUNK = 1 << 24  # logits of a chunk; a batch that has no more is one chunk and keeps them
OUT = -1e30  # logit of a padding entry; finite, so that 0 * log 0 is 0 in the entropy and in its gradient

Head = Callable[[Tensor], Tensor]
EntropyMode = Literal["none", "value", "gradient"]


class TokenStats(NamedTuple):
    """Of each target: log-probability [K] and, if asked for, entropy [K] in nats of the distribution it is
    from."""

    logprob: Tensor
    entropy: Tensor | None


def token_stats(
    head: Head,
    hidden: Tensor,
    target: np.ndarray,
    allowed_offsets: np.ndarray,
    allowed_ids: np.ndarray,
    *,
    vocabulary: int,
    temperature: float = 1.0,
    entropy: EntropyMode = "none",
    chunk: int = CHUNK,
) -> TokenStats:
    """Log-probability and entropy of each target.

    Args:
        head: hidden states [k, d] -> logits [k, V].
        hidden: [K, d], of the token that predicts each target.
        target: [K] int64.
        allowed_offsets: [K+1] into `allowed_ids`; an empty slice means unrestricted.
        vocabulary: V.
        temperature: divides the logits.
        entropy: "gradient" if it is part of the loss, "value" for a metric.
        chunk: most logits held at a time.

    Raises:
        ValueError: a target is outside its allowed set.
    """
    size = np.diff(allowed_offsets)  # [K]
    order = np.argsort(size, kind="stable")  # unrestricted ones first, then sets of similar size together
    step = max(1, chunk // vocabulary)
    one_piece = len(target) <= step
    free = int((size == 0).sum())
    stops = [*range(step, free, step), free, *range(free + step, len(target), step), len(target)]
    pieces: list[tuple[Tensor, Tensor]] = []
    start = 0
    for stop in stops:
        which = order[start:stop]
        start = stop
        if not len(which):
            continue
        table = _table(target[which], allowed_offsets, allowed_ids, which, hidden.device)
        inputs = (
            head,
            hidden[_index(which, hidden)],
            _index(target[which], hidden),
            *table,
            temperature,
            entropy,
        )
        if one_piece or not torch.is_grad_enabled():
            pieces.append(_stats(*inputs))
        else:
            pieces.append(checkpoint(_stats, *inputs, use_reentrant=False))
    if not pieces:
        nothing = hidden.new_zeros(0, dtype=torch.float32)
        return TokenStats(nothing, None if entropy == "none" else nothing)
    back = _index(np.argsort(order, kind="stable"), hidden)
    logprob = torch.cat([p[0] for p in pieces])[back]
    return TokenStats(logprob, None if entropy == "none" else torch.cat([p[1] for p in pieces])[back])


def _index(x: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(x)).to(like.device)


def _table(
    target: np.ndarray, offsets: np.ndarray, ids: np.ndarray, which: np.ndarray, device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    """Allowed ids [k, A] of a chunk, and which entries are padding; None, None for unrestricted targets."""
    size = offsets[which + 1] - offsets[which]  # [k]
    if size[0] == 0:
        return None, None
    column = np.arange(size.max())  # [A]
    padding = column >= size[:, None]  # [k, A]
    table = ids[np.where(padding, offsets[which][:, None], offsets[which][:, None] + column)]  # [k, A]
    outside = ~(table == target[:, None]).any(1)
    if outside.any():
        raise ValueError(
            f"token {target[outside][0]} was sampled outside its allowed set "
            f"{table[outside][0].tolist()[:8]}: the engine and the stored sets disagree"
        )
    return torch.from_numpy(table).to(device), torch.from_numpy(padding).to(device)


def _stats(
    head: Head,
    hidden: Tensor,
    target: Tensor,
    table: Tensor | None,
    padding: Tensor | None,
    temperature: float,
    entropy: EntropyMode,
) -> tuple[Tensor, Tensor]:
    """Log-probability [k] and entropy [k] (zeros if not asked for) of one chunk."""
    logits = head(hidden)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature  # [k, V]
    chosen = logits.gather(1, target[:, None])[:, 0]  # [k]
    if table is not None and padding is not None:
        logits = logits.gather(1, table).masked_fill(padding, OUT)  # [k, A]
    total = logits.logsumexp(-1)  # [k]
    if entropy == "none":
        return chosen - total, torch.zeros_like(chosen)
    with torch.set_grad_enabled(torch.is_grad_enabled() and entropy == "gradient"):
        share = (logits - total[:, None]).exp()  # [k, V] or [k, A]
        spread = total - (share * logits).sum(-1)  # [k]
    return chosen - total, spread if entropy == "gradient" else spread.detach()
