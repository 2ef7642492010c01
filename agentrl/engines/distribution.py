"""Arithmetic of the sampling distribution (`agentrl.engines.Sampling`): softmax(logits / T) on an allowed set.

Everything is computed in float64 from the model's logits. Arrays over the whole vocabulary are computed for one block
of batch rows at a time, so that they do not fill the memory.

Letters: B rows of the batch, R rows of a block, V vocabulary, A candidates.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from agentrl.engines.sampling import Sampling

_BLOCK = 1 << 22  # largest number of elements of a float64 block


class DrawnTokens(NamedTuple):
    """Tokens drawn for B rows.

    Attributes:
        ids: [B] int64.
        logprobs: [B] float64, nats.
        allowed: per row, in ascending order, the ids that could be drawn under the argument `allowed` of `draw`, top-k
            and top-p; an empty array means unrestricted.
    """

    ids: np.ndarray
    logprobs: np.ndarray
    allowed: list[np.ndarray]


_FREE = np.zeros(0, np.int64)
_FREE.flags.writeable = False


def draw(logits: Tensor, sampling: Sampling, noise: np.ndarray, allowed: Sequence[np.ndarray | None]) -> DrawnTokens:
    """Draw one token per row: by inverse CDF in the order of ids or, if greedy, the most probable token.

    Of several most probable tokens, greedy takes the one with the lowest id.

    Args:
        logits: [B, V] on any device.
        sampling: temperature, top_k and top_p.
        noise: [B] float64 in (0, 1).
        allowed: per row the ids that the row is restricted to, ascending and not empty; None for unrestricted.
    """
    ids, logprobs = np.zeros(len(allowed), np.int64), np.zeros(len(allowed))  # [B], [B]
    sets: list[np.ndarray] = [_FREE] * len(allowed)
    free = [b for b, ids_b in enumerate(allowed) if ids_b is None]
    bound = [(b, ids_b) for b, ids_b in enumerate(allowed) if ids_b is not None]
    if bound:
        rows = np.array([b for b, _ in bound])  # [R]
        table, filled = _pad([ids_b for _, ids_b in bound])  # [R, A], [R, A]
        rows_on_device = torch.from_numpy(rows).to(logits.device)
        candidate = logits[rows_on_device].gather(1, torch.from_numpy(table).to(logits.device))  # [R, A]
        index, logprob, support = _choose(candidate, torch.from_numpy(filled), sampling, noise[rows])
        ids[rows], logprobs[rows] = table[np.arange(len(rows)), index], logprob
        for r, (b, ids_b) in enumerate(bound):
            sets[b] = ids_b if support is None else table[r][support[r]]
    step = max(1, _BLOCK // logits.shape[1])
    for start in range(0, len(free), step):
        rows = np.array(free[start : start + step])  # [R]
        block = logits if len(rows) == len(logits) else logits[torch.from_numpy(rows).to(logits.device)]  # [R, V]
        index, logprob, support = _choose(block, None, sampling, noise[rows])
        ids[rows], logprobs[rows] = index, logprob
        if support is not None:
            for r, b in enumerate(rows):
                sets[b] = _FREE if support[r].all() else np.flatnonzero(support[r])
    return DrawnTokens(ids, logprobs, sets)


def draw_each(
    logits: Tensor,
    sampling: Sampling,
    noise: np.ndarray,
    allowed: Sequence[np.ndarray | None],
    temperatures: Sequence[float | None],
) -> DrawnTokens:
    """`draw` with one temperature per row, None for that of `sampling`. The draws of the rows are independent."""
    if all(own is None for own in temperatures):
        return draw(logits, sampling, noise, allowed)
    ids, logprobs = np.zeros(len(allowed), np.int64), np.zeros(len(allowed))  # [B], [B]
    sets: list[np.ndarray] = [_FREE] * len(allowed)
    for rows, own in by_temperature(sampling, temperatures):
        part = draw(logits[torch.from_numpy(rows).to(logits.device)], own, noise[rows], [allowed[b] for b in rows])
        ids[rows], logprobs[rows] = part.ids, part.logprobs
        for b, support in zip(rows.tolist(), part.allowed, strict=True):
            sets[b] = support
    return DrawnTokens(ids, logprobs, sets)


def by_temperature(sampling: Sampling, temperatures: Sequence[float | None]) -> Iterator[tuple[np.ndarray, Sampling]]:
    """The rows [R] of each temperature with their sampling settings."""
    hot = np.array([sampling.temperature if own is None else own for own in temperatures])  # [B]
    for one in np.unique(hot).tolist():
        yield np.flatnonzero(hot == one), sampling.model_copy(update={"temperature": one})


def top_entropy(logits: Tensor, sampling: Sampling, allowed: Sequence[np.ndarray | None], top: int = 10) -> np.ndarray:
    """[B] float64, -sum p log p / log V over the `top` most probable tokens of each row's sampling distribution.

    Source: ARPO, arXiv:2507.19849, section 3.2, and its code, which uses the ten most probable tokens. top_k and top_p
    are ignored here; at temperature 0 (greedy) the distribution is that at temperature 1.

    Args:
        logits: [B, V] on any device.
        sampling: only its temperature is used.
        allowed: per row the ids that the row is restricted to; None for unrestricted.
        top: number of most probable tokens.
    """
    vocabulary = logits.shape[1]
    found = [np.zeros(0)]
    for logprob in _allowed_logprobs(logits, sampling, allowed):
        best = logprob.topk(min(top, vocabulary), -1).values  # [R, top]
        found.append((_entropy(best) / math.log(vocabulary)).cpu().numpy())
    return np.concatenate(found)


def full_entropy(logits: Tensor, sampling: Sampling, allowed: Sequence[np.ndarray | None]) -> np.ndarray:
    """[B] float64 nats, -sum p log p over all tokens of each row's distribution, which is that of `top_entropy`."""
    logprobs = _allowed_logprobs(logits, sampling, allowed)
    return np.concatenate([np.zeros(0), *(_entropy(logprob).cpu().numpy() for logprob in logprobs)])


def _entropy(logprob: Tensor) -> Tensor:
    """[R] -sum p log p of log-probabilities [R, K], of which some may be -inf."""
    return -torch.where(logprob > -torch.inf, logprob.exp() * logprob, 0.0).sum(-1)


def _allowed_logprobs(logits: Tensor, sampling: Sampling, allowed: Sequence[np.ndarray | None]) -> Iterator[Tensor]:
    """The log-probabilities [R, V] of blocks of rows, in order, in float64; -inf for ids that a row may not draw."""
    vocabulary = logits.shape[1]
    step = max(1, _BLOCK // vocabulary)
    for start in range(0, len(allowed), step):
        x = logits[start : start + step].double() / (sampling.temperature or 1.0)  # [R, V]
        for row, ids in enumerate(allowed[start : start + step]):
            if ids is not None:
                out = torch.ones(vocabulary, dtype=torch.bool, device=x.device)
                out[torch.tensor(ids, device=x.device)] = False
                x[row].masked_fill_(out, -torch.inf)
        yield x.log_softmax(-1)


def _pad(sets: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Sets of ids as one [R, A] int64 table, and the [R, A] bool mask of its real entries."""
    sizes = np.array([len(ids) for ids in sets])  # [R]
    filled = np.arange(sizes.max()) < sizes[:, None]  # [R, A]
    table = np.zeros(filled.shape, np.int64)  # [R, A]
    table[filled] = np.concatenate(sets)
    return table, filled


def _choose(
    candidate: Tensor, filled: Tensor | None, sampling: Sampling, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Index [R] and log-prob [R] of the drawn candidates and, under top-k or top-p, the support [R, A] bool.

    The support marks the candidates that may be drawn.

    Args:
        candidate: [R, A] logits in ascending order of id.
        filled: [R, A] bool, False on padding; None if there is no padding.
    """
    x = candidate.double()  # [R, A]
    if filled is not None:
        x = x.masked_fill(~filled.to(x.device), -torch.inf)
    support: Tensor | None = None
    if sampling.temperature > 0:
        x = x / sampling.temperature
        if sampling.truncates:
            support = nucleus(x, sampling.top_k, sampling.top_p)
            x = x.masked_fill(~support, -torch.inf)
    top = x.amax(-1, keepdim=True)  # [R, 1]
    mass = (x - top).exp_()  # [R, A]
    if sampling.temperature > 0:
        cdf = mass.cumsum(-1)  # [R, A]
        total = cdf[:, -1:]  # [R, 1]
        # Rounding may make noise * total equal to the total. Stay below it, so that no token of mass 0 is drawn.
        target = torch.from_numpy(noise).to(x.device)[:, None] * total  # [R, 1]
        target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
        index = (cdf <= target).sum(-1)  # [R]
    else:
        total = mass.sum(-1, keepdim=True)  # [R, 1]
        index = candidate.argmax(-1) if filled is None else x.argmax(-1)  # [R]
    logprob = (x.gather(1, index[:, None]) - top - total.log())[:, 0]  # [R]
    return index.cpu().numpy(), logprob.cpu().numpy(), None if support is None else support.cpu().numpy()


def nucleus(x: Tensor, top_k: int, top_p: float) -> Tensor:
    """[R, A] bool, the candidates that may be drawn after top-k, and then top-p within the top k.

    Args:
        x: [R, A] logits already divided by the temperature; -inf marks candidates that are excluded already.
        top_k: see `Sampling`.
        top_p: see `Sampling`.
    """
    ordered, order = x.sort(dim=-1, descending=True, stable=True)  # [R, A]; ties keep the lower id first
    stays = ordered > -torch.inf  # [R, A]
    if top_k > 0:
        stays[:, top_k:] = False
    if top_p < 1:
        mass = ordered.masked_fill(~stays, -torch.inf).softmax(-1)  # [R, A]
        stays &= mass.cumsum(-1) - mass < top_p
    return torch.zeros_like(stays).scatter(-1, order, stays)
