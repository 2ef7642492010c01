"""What a training service does with token losses and with prompts, found out by a few small requests.

By the protocol, a service sums the losses over tokens and sequences. SkyRL's JAX back end takes the mean over the
sequences of each sequence's mean over its positions, and its list of prompt log-probs lacks the first entry. Neither
shows in an answer's form, so a wrong guess would train with other learning rates, or with log-probs of other tokens.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import numpy as np

from agentrl.engines.tinker import AdamStep, Datum, Service, ServiceError, Trainer, aligned

Sums = Literal["tokens", "sequences"]
PromptLogprobs = Literal["full", "short", "none"]

IDS = np.arange(1, 10)  # token ids that every vocabulary has
TRAINED = 4  # positions with an advantage; the longer sequence has twice as many positions
STILL = AdamStep(0.0, 0.9, 0.999, 1e-8, 0.0, 0.0)  # a step that moves nothing, and shows the gradient's norm
EPS = 1e3  # far above all gradients, so that AdamW is plain gradient descent with the rate lr / EPS
FIRST_RATE, FASTER, RATES = 1e-7, 10.0, 10  # rates that are tried until a step of descent shows
MOVING = 1e-2  # a learning rate at which one step of AdamW moves log-probs far beyond rounding
SHOWS, WANTED = 0.02, 0.1  # nats by which a step shows, and by which the steps that are compared should move
CLOSE = 0.15  # largest relative error of a ratio
APART = 0.25  # nats; largest mean difference of the log-probs of sampler and trainer, from rounding


class Ratios(NamedTuple):
    """Sizes of gradients, as multiples of that of one sequence of which every position has an advantage.

    Attributes:
        twice: of the same sequence twice.
        longer: of a sequence with twice as many positions, of which the same ones have an advantage.
        beside: of the sequence beside one with twice as many positions, of which none has an advantage.
    """

    twice: float
    longer: float
    beside: float


KNOWN: dict[Sums, Ratios] = {"tokens": Ratios(2.0, 1.0, 1.0), "sequences": Ratios(1.0, 0.5, 0.5)}


def probe_sums(service: Service, model: str) -> Sums:
    """How a service adds up the losses of tokens: `tokens` for a sum over tokens and sequences, `sequences` for the
    mean over sequences of each sequence's mean.

    The service gets small models of rank 1, which it may free afterwards.

    Args:
        service: the connection.
        model: name of the base model.

    Raises:
        ServiceError: it does something else, or its answers cannot be used.
        ServiceLost: the service gives no answer.
    """
    return probe(lambda: service.train(model, rank=1, seed=0, train_attn=True, train_mlp=True, train_unembed=False))


def probe(make: Callable[[], Trainer]) -> Sums:
    """See `probe_sums`.

    Args:
        make: returns a new model with new adapters, the same at every call.
    """
    with small_model(make) as trainer:
        batches = _batches(logprobs(trainer, sequence(TRAINED)))
        sizes = _norms(trainer, batches)
    return named(ratios(_descents(make, batches) if sizes is None else sizes))


def ratios(sizes: Sequence[float]) -> Ratios:
    """The ratios of the gradients' sizes to the first one; NaN if the first is 0 or not finite."""
    first, *others = sizes
    usable = math.isfinite(first) and first > 0
    return Ratios(*(other / first if usable else math.nan for other in others))


def named(found: Ratios) -> Sums:
    """The way of adding up with these ratios.

    Raises:
        ServiceError: no known way has them.
    """
    for name, known in KNOWN.items():
        if np.allclose(found, known, rtol=CLOSE, atol=0):
            return name
    said = ", ".join(f"{value:.3g}" for value in found)
    raise ServiceError(
        f"the training service adds up token losses in a way that is not known (ratios of gradients: {said}; a sum has "
        "2, 1, 1, a mean over sequences has 1, 0.5, 0.5): if you know that its log-probs are right, set learner.sums"
    )


def probe_prompt_logprobs(trainer: Trainer) -> PromptLogprobs:
    """What the samplers of a service return as the log-probs of a prompt.

    Returns:
        `full`: one entry per token, the first empty, as the protocol has it. `short`: the first entry is left out.
        `none`: no log-probs.

    Raises:
        ServiceError: the list has another length, or its log-probs are not those of the trained model.
        ServiceLost: the service gives no answer.
    """
    datum = sequence(len(IDS) - 1)
    there = logprobs(trainer, datum)  # [n - 1]
    (found,) = trainer.sampler().prompt_logprobs([IDS])
    values = np.array([math.nan if one is None else one for one in found or ()], np.float64)
    if not np.isfinite(values).any():
        return "none"
    kind: PromptLogprobs = "short" if len(values) == len(there) else "full"
    scored = values if kind == "short" else values[1:]
    if scored.shape != there.shape or not np.abs(scored - there).mean() <= APART:
        raise ServiceError(
            f"the training service returned {len(values)} log-probs for a prompt of {len(IDS)} tokens, which are not "
            "those of the trained model: set update.kl_coef=0, or choose another service"
        )
    return kind


def keeps_snapshots(service: Service, model: str) -> bool:
    """Does a sampler keep its weights while the model is trained, and the model its weights while a sampler is read?

    SkyRL's JAX back end has one place per model: reading an older sampler either returns the log-probs of the newer
    weights, or puts the older weights in their place.

    Args:
        service: the connection.
        model: name of the base model.

    Raises:
        ServiceError: the service's samplers return no log-probs of prompts, or no step moves the weights.
        ServiceLost: the service gives no answer.
    """
    flags = {"train_attn": True, "train_mlp": True, "train_unembed": True}
    with small_model(lambda: service.train(model, rank=1, seed=0, **flags)) as trainer:
        whole = sequence(len(IDS) - 1)
        before = logprobs(trainer, whole)  # [n - 1]
        sampler = trainer.sampler()
        add_gradient(trainer, whole, before)
        trainer.step(AdamStep(MOVING, 0.9, 0.999, 1e-8, 0.0, 0.0)).result()
        after = logprobs(trainer, whole)
        (found,) = sampler.prompt_logprobs([IDS])
        if not any(one is not None for one in found or ()):
            raise ServiceError(
                f"the samplers of {service.url} return no log-probs of prompts, so it cannot be found out whether they "
                "keep their weights while the model is trained: set run.staleness=0"
            )
        read = aligned(found, len(IDS), service.url)  # [n]
        now = logprobs(trainer, whole)
    moved = np.abs(after - before).mean()
    if not moved > 0:
        raise ServiceError("an optimiser step of the training service moves no log-prob: look at its log")
    return bool(max(np.abs(read[1:] - before).mean(), np.abs(now - after).mean()) < moved / 2)


def sequence(advantages: int, size: int = 0) -> Datum:
    """A sequence with `size` positions, of which the first `advantages` have an advantage of 1."""
    size = size or advantages
    column = (np.arange(size) < advantages).astype(np.float32)
    return Datum(IDS[:size], IDS[1 : size + 1], {"advantages": column})


def logprobs(trainer: Trainer, datum: Datum) -> np.ndarray:
    """[L] the log-probs of a sequence."""
    weights = {"weights": np.ones(len(datum.targets), np.float32)}
    return trainer.forward([datum._replace(columns=weights)]).result().logprobs[0]


def add_gradient(trainer: Trainer, datum: Datum, now: np.ndarray) -> None:
    """Add the gradient of a sequence's log-probs, times its advantages; `now` [L] are the values of the log-probs."""
    trainer.forward_backward([datum._replace(columns={**datum.columns, "logprobs": now.astype(np.float32)})]).result()


def _batches(now: np.ndarray) -> list[list[Datum]]:
    """The batches whose gradients are compared; the first is one sequence, `Ratios` has the others. `now` [TRAINED]."""
    long = np.zeros(2 * TRAINED)
    long[:TRAINED] = now

    def at(datum: Datum) -> Datum:
        old = long[: len(datum.targets)].astype(np.float32)
        return datum._replace(columns={**datum.columns, "logprobs": old})

    one, longer, idle = (at(sequence(*sizes)) for sizes in ((TRAINED, 0), (TRAINED, 2 * TRAINED), (0, 2 * TRAINED)))
    return [[one], [one, one], [longer], [one, idle]]


def _norms(trainer: Trainer, batches: Sequence[Sequence[Datum]]) -> list[float] | None:
    """The gradient norm of each batch; None if the service does not report norms. No weight moves.

    Each gradient is awaited before its step is sent, because not every service keeps the order (`Service.in_order`).
    """
    norms = []
    for batch in batches:
        trainer.forward_backward(batch).result()
        norms.append(trainer.step(STILL).result().get("grad_norm"))
    return None if None in norms else [float(norm) for norm in norms if norm is not None]


def _descents(make: Callable[[], Trainer], batches: Sequence[Sequence[Datum]]) -> list[float]:
    """How far one step of plain gradient descent on each batch raises the log-probs of the first batch, in nats.

    Each step begins with new adapters. For small steps, this is proportional to the gradient.

    Raises:
        ServiceError: no step moves anything.
    """
    rate = _rate(make, batches[0])
    moved = []
    for batch in batches:
        with small_model(make) as trainer:
            moved.append(_descent(trainer, batch, rate))
    return moved


def _rate(make: Callable[[], Trainer], batch: Sequence[Datum]) -> float:
    """A rate at which one step on a batch moves its log-probs by about WANTED nats. Smaller steps are tried first."""
    rate = FIRST_RATE
    with small_model(make) as trainer:
        for _ in range(RATES):
            moved = _descent(trainer, batch, rate)
            if abs(moved) >= SHOWS:
                return rate * WANTED / abs(moved)
            rate *= FASTER
    raise ServiceError(
        "the training service reports no gradient norm, and its optimiser steps move no log-prob, so it cannot be "
        "found out how it adds up token losses: set learner.sums"
    )


def _descent(trainer: Trainer, batch: Sequence[Datum], rate: float) -> float:
    """The change of the log-probs of the first batch by one step of gradient descent on a batch, in nats."""
    before = logprobs(trainer, sequence(TRAINED)).sum()
    trainer.forward_backward(batch).result()
    trainer.step(AdamStep(rate * EPS, 0.0, 0.0, EPS, 0.0, 0.0)).result()
    return float(logprobs(trainer, sequence(TRAINED)).sum() - before)


@contextmanager
def small_model(make: Callable[[], Trainer]) -> Iterator[Trainer]:
    """A new model, which the service may free afterwards."""
    trainer = make()
    try:
        yield trainer
    finally:
        trainer.unload()
