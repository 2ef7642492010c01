"""The passes through a network in the memory of this process: packed trees or paths, micro-batch by micro-batch.

Letters: see `agentrl.trainer.path_weights`; also R rows to train, T packed tokens of a micro-batch, d hidden size.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from agentrl.graph import StepGraph, Tokens, decisions, token_rows
from agentrl.model import Batch, EntropyMode, Network, TokenStats, columns_like, microbatches, pack
from agentrl.noise import fold
from agentrl.trainer.meter import Meter
from agentrl.trainer.passes import PerToken
from agentrl.trainer.path_weights import spread
from agentrl.trainer.ranks import Ranks, ranks_of, run_idle
from agentrl.trainer.temperatures import step_temperatures
from agentrl.trainer.work import Work, observed_loss

FLAT = 1e-6  # relative; an entropy that is less below its largest value is the largest one, up to rounding


class LocalPasses:
    """The passes through a network of this process; see `agentrl.trainer.passes.Passes`.

    Args:
        network: the network, whole or divided over ranks.
        dropout: keep the network's dropout while it learns.
    """

    def __init__(self, network: Network, dropout: bool = False) -> None:
        self.network, self._dropout = network, dropout

    @property
    def ranks(self) -> Ranks:
        """The processes that share the network."""
        return ranks_of(self.network)

    def total(self, x: np.ndarray) -> np.ndarray:
        """The sum of x over the processes that share the network."""
        return self.ranks.total(x)

    def read(
        self,
        tokens: Tokens,
        rows: np.ndarray,
        *,
        temperature: float | np.ndarray,
        max_tokens: int,
        entropy: bool = False,
    ) -> PerToken:
        """See `Passes.read`."""
        return _per_token(self.network, tokens, rows, temperature, max_tokens, entropy)

    @contextmanager
    def learning(self, seed: int) -> Iterator[None]:
        """See `Passes.learning`."""
        with self.network.learning(dropout=self._dropout), self.noise(seed):
            yield

    @contextmanager
    def noise(self, seed: int) -> Iterator[None]:
        """Seed the noise of dropout, so that a resumed run draws the same noise as an uninterrupted run."""
        device, rank = self.network.device, self.ranks.rank
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(fold([seed, rank] if rank else [seed]))
            yield

    def accumulate(
        self,
        work: Work,
        rows: np.ndarray,
        share: np.ndarray,
        max_tokens: int,
        meter: Meter,
    ) -> bool:
        """See `Passes.accumulate`: forward and backward passes, micro-batch by micro-batch."""
        tokens, net, copies = work.graph.tokens, self.network, work.copies
        assert tokens is not None
        total = np.bincount(copies.row, share, len(work.graph))  # [N] over the copies of a row
        batch = pack(tokens, rows[work.active[rows]], total[token_rows(tokens)], sharing=net.sharing)
        bound = work.bound(rows) if work.bound is not None and len(batch) > max_tokens else None
        for part, counts in self.ranks.share(microbatches(batch, max_tokens, _bundle(work, batch))):
            hidden = net.hidden(part)  # [T, d]
            if not counts:
                run_idle(net, hidden)
                continue
            stats = _stats(net, work, part, hidden, work.entropy)
            loss = observed_loss(work, stats, part.source, spread(part.row, copies.row), meter, share, bound)
            loss.backward()  # type: ignore[no-untyped-call]
            meter.add(len(part), loss, len(part.target))
        return len(batch.target) > 0

    def observe(self, work: Work, rows: np.ndarray, max_tokens: int, meter: Meter) -> None:
        """See `Passes.observe`.

        Until an optimiser step of the update moves the weights, the annotation knows the statistics of these rows.
        Later they take a forward pass without gradient.
        """
        tokens, net, ranks = work.graph.tokens, self.network, self.ranks
        assert tokens is not None
        row = token_rows(tokens)  # [S]
        source = np.flatnonzero(decisions(tokens) & np.isin(row, rows))  # [K]
        if not len(source):
            return
        none = np.zeros(len(work.copies.row))  # [C] these rows count in the metrics alone
        known = [tokens.columns.get(name, np.full(len(row), np.nan))[source] for name in ("old_logprob", "old_entropy")]
        if not meter.moved and not np.isnan(known).any():
            if ranks.leads:
                stats = TokenStats(*map(torch.from_numpy, known))
                observed_loss(work, stats, source, spread(row[source], work.copies.row), meter, none)
            return
        batch = pack(tokens, rows, np.zeros(len(row)), sharing=net.sharing)
        with net.reading():
            for part, counts in ranks.share(microbatches(batch, max_tokens, _bundle(work, batch))):
                hidden = net.hidden(part)  # [T, d]
                if counts:
                    stats = _stats(net, work, part, hidden, "value")
                    observed_loss(work, stats, part.source, spread(part.row, work.copies.row), meter, none)

    def means(self, meter: Meter) -> dict[str, float]:
        """See `Passes.means`; `tree_packing` says whether shared tokens are computed once."""
        return {**meter.means(self.ranks), "tree_packing": float(self.network.sharing == "tree")}


def _stats(net: Network, work: Work, part: Batch, hidden: Tensor, entropy: EntropyMode) -> TokenStats:
    """The statistics [K] of a micro-batch's targets, from the hidden states [T, d] of its packed tokens.

    An entropy that is the largest possible one, up to rounding, has no gradient (see `agentrl.loss.unrounded`).
    """
    hot = step_temperatures(work.graph, work.temperature)
    stats = net.stats(hidden, part, temperature=hot if isinstance(hot, float) else hot[part.row], entropy=entropy)
    if stats.entropy is None or entropy != "gradient":
        return stats
    size = np.diff(part.allowed_offsets)  # [K]
    (largest,) = columns_like([np.log(np.where(size, size, net.config.vocab_size))], stats.entropy)  # [K]
    below = (largest - stats.entropy.detach()) / largest.clamp(min=1.0)  # [K]
    return TokenStats(stats.logprob, torch.where(below > FLAT, stats.entropy, stats.entropy.detach()))


def _bundle(work: Work, batch: Batch) -> np.ndarray | None:
    """[K] which targets stay in one micro-batch; None if the loss does not need this."""
    return None if work.bundle is None else work.bundle[batch.row]


def logprobs(
    network: Network,
    graph: StepGraph | Tokens,
    rows: np.ndarray,
    *,
    temperature: float | np.ndarray,
    max_tokens: int,
) -> np.ndarray:
    """[S] float64 log-probs in nats of the sampled tokens of `rows` under a network; NaN elsewhere.

    The log-prob is 0 for a sampled token without an alternative. `temperature` is one number, of which 0 (greedy)
    counts as 1, or [N], one number above 0 per step.
    """
    return _per_token(network, graph, rows, temperature, max_tokens, entropy=False).logprob


def token_entropies(
    network: Network,
    graph: StepGraph | Tokens,
    rows: np.ndarray,
    *,
    temperature: float | np.ndarray,
    max_tokens: int,
) -> np.ndarray:
    """[S] float64 entropy in nats of a network's distribution at each sampled token of `rows`; NaN elsewhere.

    The entropy is 0 for a sampled token without an alternative. For `temperature` see `logprobs`.
    """
    found = _per_token(network, graph, rows, temperature, max_tokens, entropy=True).entropy
    assert found is not None
    return found


def _per_token(
    network: Network,
    graph: StepGraph | Tokens,
    rows: np.ndarray,
    temperature: float | np.ndarray,
    max_tokens: int,
    entropy: bool,
) -> PerToken:
    """Log-probs [S] and, with `entropy`, entropies [S], from one forward pass; see `logprobs` and `token_entropies`."""
    tokens = graph.tokens if isinstance(graph, StepGraph) else graph
    assert tokens is not None
    row_of = token_rows(tokens)  # [S]
    forced = tokens.sampled & np.isin(row_of, rows) & ~decisions(tokens)  # [S]
    out = np.full((len(tokens.ids), 1 + entropy), np.nan)  # [S, 1 or 2]
    batch = pack(tokens, rows, np.zeros(len(out)), sharing=network.sharing)
    ranks = ranks_of(network)
    read: list[tuple[np.ndarray, Tensor]] = []  # read after the last pass, so that no pass waits for the one before
    with network.reading():
        for part, counts in ranks.share(microbatches(batch, max_tokens)):
            hidden = network.hidden(part)
            if counts:
                hot = temperature[row_of[part.source]] if isinstance(temperature, np.ndarray) else temperature or 1.0
                stats = network.stats(hidden, part, temperature=hot, entropy="value" if entropy else "none")
                read.append((part.source, torch.stack([x for x in stats if x is not None], 1)))
    for source, found in read:
        out[source] = found.double().cpu().numpy()
    out = np.where(forced[:, None], 0.0, ranks.fill(out))
    return PerToken(out[:, 0], out[:, 1] if entropy else None)
