"""What goes to a training service and what comes back, as arrays; and the checks of its answers.

Letters: L inputs of one sequence, n tokens.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from agentrl.engines.tinker.service_errors import ServiceError

GRAD_NORMS = ("grad_norm", "unclipped_grad_l2:mean")  # ends of names under which services report the gradient's norm


class Datum(NamedTuple):
    """One sequence of a training request.

    Attributes:
        inputs: [L] int64.
        targets: [L] int64; targets[t] is the token after inputs[t].
        columns: name -> [L] float32: `weights`, or `logprobs` and `advantages`.
    """

    inputs: np.ndarray
    targets: np.ndarray
    columns: Mapping[str, np.ndarray]


class Passed(NamedTuple):
    """The answer to a forward pass, with or without a backward pass.

    Attributes:
        logprobs: per datum [L] float64, the log-probs of its targets.
        metrics: the numbers that the service reports.
    """

    logprobs: list[np.ndarray]
    metrics: Mapping[str, float]


class Sampled(NamedTuple):
    """One answer of a sampler.

    Attributes:
        tokens: [n] int64.
        logprobs: [n] float64.
        finish: `stop` or `length`.
    """

    tokens: np.ndarray
    logprobs: np.ndarray
    finish: str


class AdamStep(NamedTuple):
    """The options of one step of AdamW with decoupled weight decay; grad_clip = 0 is no limit of the gradient norm."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    grad_clip: float


def passed(answer: Any, sizes: Sequence[int], url: str) -> Passed:
    """The answer to a forward pass over sequences with `sizes` targets.

    Raises:
        ServiceError: log-probs are missing, or not finite.
    """
    outputs, who = answer.loss_fn_outputs, f"the training service at {url}"
    if len(outputs) != len(sizes):
        raise ServiceError(f"{who} returned {len(outputs)} results for {len(sizes)} sequences: look at its log")
    logprobs = []
    for output, size in zip(outputs, sizes, strict=True):
        column = output["logprobs"].to_numpy() if "logprobs" in output else np.zeros(0)
        found = np.asarray(column, np.float64).reshape(-1)  # [L]
        if len(found) != size or not np.isfinite(found).all():
            raise ServiceError(
                f"{who} returned {np.isfinite(found).sum()} log-probs for {size} tokens: look at its log, or choose "
                "another service"
            )
        logprobs.append(found)
    return Passed(logprobs, metrics(answer))


def aligned(found: Sequence[float | None] | None, size: int, url: str) -> np.ndarray:
    """[size] float64: the log-probs of a text's tokens, as a service returned them; the first is NaN.

    By the protocol, the list has one entry per token, and the first is None. SkyRL's JAX back end leaves the first out.

    Raises:
        ServiceError: the list is empty, has another length, or has gaps.
    """
    values = np.array([math.nan if one is None else one for one in found or ()], np.float64)
    if np.isnan(values).all() and size > 1:
        raise ServiceError(
            f"the training service at {url} returns no log-probs of prompts, which the KL term and teachers need: set "
            "update.kl_coef=0, or choose a service that returns them"
        )
    scored = values if len(values) == size - 1 else values[1:]
    if len(values) not in (size - 1, size) or not np.isfinite(scored).all():
        raise ServiceError(
            f"the training service at {url} returned {np.isfinite(values).sum()} log-probs for a text of {size} "
            f"tokens, where the protocol has {size - 1}: set update.kl_coef=0, or choose another service"
        )
    return np.concatenate([[math.nan], scored])


def sampled(answer: Any, url: str) -> Sampled:
    """The only sequence of an answer."""
    who = f"the training service at {url}"
    if len(answer.sequences) != 1:
        raise ServiceError(f"{who} returned {len(answer.sequences)} answers to a request for one: it does not fit")
    (found,) = answer.sequences
    if found.logprobs is None or len(found.logprobs) != len(found.tokens):
        raise ServiceError(
            f"{who} returned an answer without the log-prob of each token, which training needs: choose another service"
        )
    tokens, logprobs = np.asarray(found.tokens, np.int64), np.asarray(found.logprobs, np.float64)
    if not np.isfinite(logprobs).all():
        raise ServiceError(f"{who} returned log-probs that are not finite: look at its log")
    return Sampled(tokens, logprobs, "stop" if found.stop_reason == "stop" else "length")


def metrics(answer: Any) -> dict[str, float]:
    """The numbers of an answer; `grad_norm` also under this name."""
    found = {name: float(value) for name, value in (answer.metrics or {}).items()}
    norms = [value for name, value in found.items() if name.endswith(GRAD_NORMS)]
    return {**found, "grad_norm": norms[0]} if norms else found
