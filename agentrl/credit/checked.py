"""Checks the result of a credit method, because users may write their own methods."""

from collections.abc import Callable
from typing import Any

import numpy as np

from agentrl.credit.method import Credit, CreditMethod
from agentrl.graph import StepGraph


def checked_credit(method: CreditMethod, found: Any, graph: StepGraph, row: Callable[[int], str]) -> Credit:
    """The credit that a method returned for these steps.

    Args:
        method: the credit method.
        found: the method's return value.
        graph: the steps that the method was given.
        row: a function from a row of `graph` to the step's name in error messages.

    Raises:
        ValueError: `found` is no `Credit`; one of its arrays does not hold numbers, or does not have the shape [N]
            (`token_advantage`: [S]); or an advantage or a weight is not finite.
    """
    n, label = len(graph), f"credit method {method.label}"
    if not isinstance(found, Credit):
        shape = f" of shape {_shape(found)}" if hasattr(found, "shape") else ""
        raise ValueError(
            f"{label} returned {type(found).__name__}{shape}: return agentrl.credit.Credit.of(advantage) with one "
            f"number per step, here of shape ({n},)"
        )
    for name in ("advantage", "positive", "negative", "weight", "assigned", "returns"):
        if name != "returns" or found.returns is not None:
            _check(label, name, getattr(found, name), n, "step")
    for name in ("advantage", "positive", "negative", "weight"):
        _check_finite(label, name, getattr(found, name), row)
    if found.token_advantage is not None:
        _check_tokens(label, found.token_advantage, graph, row)
    return found


def _check(label: str, name: str, values: Any, n: int, per: str) -> None:
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiub":
        kind = f"an array of type {values.dtype}" if isinstance(values, np.ndarray) else type(values).__name__
        raise ValueError(
            f"{label} returned {name} as {kind}: give a NumPy array of numbers, one per {per}, shape ({n},)"
        )
    if values.shape != (n,):
        raise ValueError(f"{label} returned {name} of shape {_shape(values)}: give one number per {per}, shape ({n},)")


def _check_finite(label: str, name: str, values: np.ndarray, row: Callable[[int], str]) -> None:
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        more = f", and to {len(wrong) - 1} more steps" if len(wrong) > 1 else ""
        raise ValueError(
            f"{label} gave the {name} {values[wrong[0]]} to {row(int(wrong[0]))}{more}: give finite numbers, or "
            "exclude these steps with Credit.of(advantage, assigned=...)"
        )


def _check_tokens(label: str, values: Any, graph: StepGraph, row: Callable[[int], str]) -> None:
    """Check the advantages per token [S]. Only the advantages of sampled tokens must be finite."""
    if graph.tokens is None:
        raise ValueError(f"{label} returned token_advantage for steps without tokens: return None for such steps")
    _check(label, "token_advantage", values, len(graph.tokens.ids), "token")
    wrong = np.flatnonzero(~np.isfinite(values) & graph.tokens.sampled)
    if len(wrong):
        step = int(np.searchsorted(graph.tokens.offsets, wrong[0], side="right")) - 1
        raise ValueError(
            f"{label} gave the token_advantage {values[wrong[0]]} to a token of {row(step)}: give finite numbers"
        )


def _shape(values: Any) -> str:
    return str(tuple(values.shape))
