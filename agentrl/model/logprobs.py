"""Log-probabilities and entropies of targets, under each target's allowed set and the sampling temperature.

Logits are converted to float32 (or stay wider) right after the matrix product, for any type of the weights. Large
[K, V] logits are computed in chunks, and each chunk again in the backward pass, so that they are never stored whole.

Letters: K targets, k targets of a chunk, V vocabulary, A the largest allowed set of a chunk, d width of the hidden
states.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CHUNK = 1 << 24  # largest number of logits per chunk; a batch that has no more logits than this stores them
OUT = -1e30  # logit of a padding entry; not -inf, because 0 * -inf would be nan in the entropy and its gradient

Head = Callable[[Tensor], Tensor]
EntropyMode = Literal["none", "value", "gradient"]


class TokenStats(NamedTuple):
    """Log-probability [K] of each target and entropy [K] of its distribution (None if not requested), both in nats."""

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
    temperature: float | np.ndarray = 1.0,
    entropy: EntropyMode = "none",
    chunk: int = CHUNK,
) -> TokenStats:
    """Log-probability and entropy of each target.

    Args:
        head: hidden states [k, d] -> logits [k, V].
        hidden: [K, d] hidden state of the token that predicts each target.
        target: [K] int64 token ids.
        allowed_offsets: [K+1] int64 into `allowed_ids`; an empty slice means unrestricted.
        allowed_ids: int64 token ids.
        vocabulary: V.
        temperature: divides the logits; one number, or [K], one per target.
        entropy: "gradient" if the entropy is part of the loss, "value" if it is a metric only, "none" to leave it out.
        chunk: largest number of logits in memory at a time.

    Raises:
        ValueError: a target is outside its allowed set.
    """
    size = np.diff(allowed_offsets)  # [K]
    order = np.argsort(size, kind="stable")  # unrestricted targets first, then allowed sets of similar size together
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
            _divisor(temperature, which, hidden),
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


def _divisor(temperature: float | np.ndarray, which: np.ndarray, like: Tensor) -> float | Tensor:
    """The temperature of the targets `which` [k], as a number or as a tensor [k, 1]."""
    return _index(temperature[which], like)[:, None] if isinstance(temperature, np.ndarray) else temperature


def _index(x: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(x)).to(like.device)


def _table(
    target: np.ndarray, offsets: np.ndarray, ids: np.ndarray, which: np.ndarray, device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    """Allowed ids [k, A] of a chunk and the mask [k, A] of padding entries; None, None for unrestricted targets."""
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
    temperature: float | Tensor,
    entropy: EntropyMode,
) -> tuple[Tensor, Tensor]:
    """Log-probability [k] and entropy [k] of one chunk; the entropy is zeros if `entropy` is "none"."""
    logits = head(hidden)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # [k, V]
    logits = logits / (temperature.to(logits.dtype) if isinstance(temperature, Tensor) else temperature)
    target_logit = logits.gather(1, target[:, None])[:, 0]  # [k]
    if table is not None and padding is not None:
        logits = logits.gather(1, table).masked_fill(padding, OUT)  # [k, A]
    total = logits.logsumexp(-1)  # [k]
    if entropy == "none":
        return target_logit - total, torch.zeros_like(target_logit)
    with torch.set_grad_enabled(torch.is_grad_enabled() and entropy == "gradient"):
        share = (logits - total[:, None]).exp()  # [k, V] or [k, A]
        spread = total - (share * logits).sum(-1)  # [k]
    return target_logit - total, spread if entropy == "gradient" else spread.detach()
