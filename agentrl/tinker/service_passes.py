"""The passes of an update at a training service: our loss on log-probs here, the model's backward pass there.

For each mini-batch, the log-probs of its sampled tokens are read (a forward pass; none if the weights have not changed
since they were read before), the loss of agentrl is computed on them, and its derivative by each log-prob is sent as
the advantages A of the service's loss `importance_sampling`, -ratio * A, at ratio 1, where its gradient is -A times
that of the log-prob. So every loss of `algorithms/loss`, every aggregation and every kind of credit works unchanged.
What needs logits, hidden states or a value head does not (`agentrl.tinker.checks`).

Letters: S tokens of the graph, D sequences, K targets of a mini-batch, X targets of all its copies.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
import torch

from agentrl.engines.tinker import Datum, ServiceError
from agentrl.graph import Tokens, decisions, token_rows
from agentrl.model import TokenStats
from agentrl.pulse import PULSE
from agentrl.tinker.datums import Sequences, datums, gathered, unroll
from agentrl.tinker.sums import Sums
from agentrl.trainer import Meter, PerToken, Work, observed_loss, spread, step_temperatures

DRIFT = 0.1  # nats; two forward passes of one service may differ by this much in the mean, from rounding


class Push(NamedTuple):
    """The gradient of one mini-batch, not yet sent.

    Attributes:
        tokens: the token table of the graph.
        on: the sequences.
        data: what is sent, one entry per sequence.
        now: [S] the log-probs on which the gradient was computed; NaN elsewhere.
        finite: is every entry of the gradient a number?
    """

    tokens: Tokens
    on: Sequences
    data: list[Datum]
    now: np.ndarray
    finite: bool


class ServicePasses:
    """The passes through a model that a service trains; see `agentrl.trainer.Passes`.

    Args:
        trainer: the model at the service, an `agentrl.engines.tinker.Trainer`.
        sums: how the service adds up token losses; see `ServiceOptions.sums`.

    Attributes:
        pushed: the gradients since the last optimiser step.
        forward_tokens: tokens that passes without a gradient have read since the last `means`.
        reference_tokens: tokens of prompts that a sampler of the reference model has read since the last `means`.
    """

    def __init__(self, trainer: Any, sums: Sums) -> None:
        self.trainer, self.sums = trainer, sums
        self.pushed: list[Push] = []
        # Of each token table that is still in use: its ids [S], and log-probs [S] by the current weights.
        self._known: list[tuple[ref[np.ndarray], np.ndarray]] = []
        self.reference_tokens = 0
        self.forward_tokens = self._backward = self._distinct = 0  # tokens since the last `means`

    def total(self, x: np.ndarray) -> np.ndarray:
        """x itself, because one process talks to the service."""
        return x

    def read(
        self,
        tokens: Tokens,
        rows: np.ndarray,
        *,
        temperature: float | np.ndarray,
        max_tokens: int,
        entropy: bool = False,
    ) -> PerToken:
        """See `agentrl.trainer.Passes.read`. The entropies are NaN, because the service does not return them."""
        check_temperature(temperature)
        own = tokens.sampled & np.isin(token_rows(tokens), rows)  # [S]
        now = self._logprobs(tokens, own & decisions(tokens))
        logprob = np.where(own & ~decisions(tokens), 0.0, np.where(own, now, np.nan))
        return PerToken(logprob, np.full(len(logprob), np.nan) if entropy else None)

    @contextmanager
    def learning(self, seed: int) -> Iterator[None]:
        """See `agentrl.trainer.Passes.learning`. The service draws no noise in an update."""
        yield

    def accumulate(self, work: Work, rows: np.ndarray, share: np.ndarray, max_tokens: int, meter: Meter) -> bool:
        """See `agentrl.trainer.Passes.accumulate`. The gradient is sent with the next optimiser step (`push`)."""
        tokens = work.graph.tokens
        assert tokens is not None
        check_temperature(step_temperatures(work.graph, work.temperature))
        row = token_rows(tokens)  # [S]
        wanted = decisions(tokens) & np.isin(row, rows[work.active[rows]])  # [S]
        source = np.flatnonzero(wanted)  # [K]
        if not len(source):
            return False
        now = self._logprobs(tokens, wanted)  # [S]
        logprob = torch.tensor(now[source], requires_grad=True)  # [K]
        on = spread(row[source], work.copies.row)
        loss = observed_loss(work, TokenStats(logprob, None), source, on, meter, share)
        (slope,) = torch.autograd.grad(loss, logprob, allow_unused=True)
        column = np.zeros(len(now))  # [S] derivative of the loss by each log-prob
        column[source] = 0.0 if slope is None else slope.numpy()
        sequences = unroll(tokens, column != 0)
        meter.add(sequences.sent, loss, len(source))
        self._distinct += sequences.distinct
        data = datums(tokens, sequences, {"logprobs": now, "advantages": -column})
        self.pushed.append(Push(tokens, sequences, self._scaled(data), now, bool(np.isfinite(column).all())))
        return True

    def observe(self, work: Work, rows: np.ndarray, max_tokens: int, meter: Meter) -> None:
        """Count the metrics of rows without a gradient, if their log-probs are known.

        After the first optimiser step they would take a forward pass, which costs money and changes no weight.
        """
        tokens = work.graph.tokens
        assert tokens is not None
        row, known = token_rows(tokens), self._cached(tokens)
        source = np.flatnonzero(decisions(tokens) & np.isin(row, rows) & ~np.isnan(known))  # [K]
        if len(source):
            stats = TokenStats(torch.from_numpy(known[source]), None)
            none = np.zeros(len(work.copies.row))  # [C] these rows count in the metrics alone
            observed_loss(work, stats, source, spread(row[source], work.copies.row), meter, none)

    def means(self, meter: Meter) -> dict[str, float]:
        """The metrics of the update, with the tokens that the service has read since the last call.

        `trained_tokens` are those of all passes and `backward_tokens` those of the passes with a gradient.
        `repeated_prefixes` is the ratio of the latter to the tokens of packed trees. A sampler of the reference model
        has read the `reference_tokens`.
        """
        counts = {
            "trained_tokens": float(self.forward_tokens + self._backward),
            "backward_tokens": float(self._backward),
            "reference_tokens": float(self.reference_tokens),
            "repeated_prefixes": self._backward / self._distinct if self._distinct else 1.0,
        }
        self.reference_tokens = self.forward_tokens = self._backward = self._distinct = 0
        return {**meter.means(), **counts}

    def send(self) -> Callable[[], None]:
        """Send the gradients; returns a function that waits for them and checks the mean drift.

        The drift is the difference, in nats, between the log-probs on which a gradient was computed and those of the
        backward pass.

        Raises:
            ServiceError: from the returned function: the drift is too large, so ratios are not 1.
        """
        pushed, self.pushed = self.pushed, []
        self._backward += sum(push.on.sent for push in pushed)
        waiting = [(push, self.trainer.forward_backward(push.data)) for push in pushed]

        def wait() -> None:
            apart = [_apart(push, answer.result().logprobs) for push, answer in waiting]
            drift = float(np.concatenate(apart).mean())
            if not drift <= DRIFT:
                raise ServiceError(
                    f"the service's log-probs of the same tokens differ by {drift:.2g} nats between two passes in the "
                    f"mean, above {DRIFT}: the gradient would be wrong; look whether something else trains this model"
                )

        return wait

    def moved(self) -> None:
        """The weights have changed: forget the log-probs that were read."""
        self._known = []

    def _scaled(self, data: list[Datum]) -> list[Datum]:
        """The data with factors that undo the service's means over positions and sequences."""
        if self.sums == "tokens":
            return data
        return [
            one._replace(
                columns={
                    **one.columns,
                    "advantages": (one.columns["advantages"] * len(data) * len(one.inputs)).astype(np.float32),
                }
            )
            for one in data
        ]

    def _logprobs(self, tokens: Tokens, wanted: np.ndarray) -> np.ndarray:
        """[S] the log-probs of the tokens `wanted` by the current weights; NaN elsewhere."""
        if (np.diff(tokens.allowed_offsets)[wanted] > 0).any():
            raise ValueError(
                "a training service computes log-probs over the whole vocabulary, and these steps restrict their "
                "answers: set engine.actions=free"
            )
        known = self._cached(tokens)
        unknown = wanted & np.isnan(known)
        if unknown.any():
            on = unroll(tokens, unknown)
            self.forward_tokens += on.sent
            with PULSE.call("update"):
                found = self.trainer.forward(datums(tokens, on, {"weights": np.ones(len(wanted))})).result()
            known = np.where(unknown, gathered(found.logprobs, on, len(known)), known)
            others = [one for one in self._known if one[0]() is not None and one[0]() is not tokens.ids]
            self._known = [*others, (ref(tokens.ids), known)]
        return np.where(wanted, known, np.nan)

    def _cached(self, tokens: Tokens) -> np.ndarray:
        """[S] the log-probs that were read since the last optimiser step, NaN where there are none."""
        found = next((column for ids, column in self._known if ids() is tokens.ids), None)
        return np.full(len(tokens.ids), np.nan) if found is None else found


class FrozenPasses(ServicePasses):
    """The passes through a model that is only read, such as the reference model.

    Args:
        ask: returns the log-probs [L] of each path [L] of ids; the first entry of each is not used.
        count: gets the number of tokens that are read.
    """

    def __init__(self, ask: Callable[[Sequence[np.ndarray]], list[np.ndarray]], count: Callable[[int], None]) -> None:
        super().__init__(None, "tokens")
        self._ask, self._count = ask, count

    def _logprobs(self, tokens: Tokens, wanted: np.ndarray) -> np.ndarray:
        if not wanted.any():  # such as of a policy that has no step in this batch
            return np.full(len(wanted), np.nan)
        on = unroll(tokens, wanted)
        self._count(on.sent)
        with PULSE.call("update"):
            found = self._ask([tokens.ids[place] for place in on.places])
        column: np.ndarray = gathered([one[1:] for one in found], on, len(wanted))
        return column


def check_temperature(temperature: float | np.ndarray) -> None:
    """Raise ValueError if a temperature is not 1; 0 (greedy) counts as 1."""
    other = np.setdiff1d(np.atleast_1d(temperature), [0.0, 1.0])
    if len(other):
        raise ValueError(
            f"a training service computes log-probs at temperature 1, and these steps were sampled at {other[0]:g}: "
            "set sampling.temperature=1"
        )


def _apart(push: Push, answer: Sequence[np.ndarray]) -> np.ndarray:
    """[n] absolute differences, in nats, of the log-probs of the tokens with a gradient."""
    found = gathered(answer, push.on, len(push.now))  # [S]
    counted = ~np.isnan(found) & ~np.isnan(push.now)
    drift: np.ndarray = np.abs(found - push.now)[counted]
    return drift
