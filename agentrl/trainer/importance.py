"""Importance weights of tokens that an older version or another implementation of the model has sampled.

The ratio of a token is r = pi_old / pi_behaviour = exp(old - behaviour): the trainer's probability before the update,
divided by the probability with which the engine sampled the token. r differs from 1 if older weights played the
rollouts (`run.staleness`) or if engine and trainer compute differently. The weight w(r) multiplies the policy-gradient
terms of the token. No gradient flows through w. PPO's own ratio is still pi_new / pi_old. PPO with these weights is
called decoupled PPO (Hilton et al., arXiv:2110.00641, section 3; AReaL, arXiv:2505.24298, section 5.2).

- `truncate`: w = min(r, high). This is truncated importance sampling per token: c_i in Eq. 1 of V-trace (Espeholt et
  al., arXiv:1802.01561) with c-bar = high and lambda = 1. Default 2.
- `mask`: w = r if low <= r <= high, else 0. IcePop (Ring-1T, arXiv:2510.18855, the function M; also Eq. 1 of
  INTELLECT-3, arXiv:2512.16144); defaults 0.5 and 5, as in Ring-1T.
- `sequence_mask`: w = 1 on all tokens of a sequence if low <= g <= high, else 0, where g is the geometric mean of r
  over the decisions of the sequence. This is verl's rejection by the geometric mean (docs/algo/rollout_corr_math.md,
  section 3.3.3 and A_geo of 3.4); defaults 0.5 and 2. verl's upper bound of 1.001 is meant for the case that engine and
  trainer hold the same weights. A sequence is a step's answer or an episode, as `update.sequence` says.

Masked tokens stay in the denominators of the aggregation, as in IcePop's objective.

Letters: K decisions, Q sequences.
"""

from typing import NamedTuple

import numpy as np

from agentrl.trainer.sections import Importance

BANDS: dict[Importance, tuple[float, float]] = {  # default (low, high) of each kind
    "none": (0.0, np.inf),
    "truncate": (0.0, 2.0),
    "mask": (0.5, 5.0),
    "sequence_mask": (0.5, 2.0),
}


class Weighed(NamedTuple):
    """Weights [K] float64 >= 0, and metrics of the weights."""

    weight: np.ndarray
    metrics: dict[str, float]


def importance_weights(
    log_ratio: np.ndarray, sequence: np.ndarray, kind: Importance, low: float | None = None, high: float | None = None
) -> Weighed:
    """The weight of each decision, by the formulas in the module's docstring.

    Args:
        log_ratio: [K] float64 nats, old - behaviour.
        sequence: [K] int, the sequence of each decision.
        kind: the formula, a key of `BANDS`; `none` gives all decisions the weight 1.
        low, high: bounds of the ratio, or of a sequence's geometric mean; None for the bounds in `BANDS`.

    Returns:
        The weights, with the metrics `importance_mean` and `importance_truncated` (share of decisions above `high`) or
        `importance_masked` (share of decisions with weight 0). Without decisions, and for `none`, there are no metrics.
    """
    own_low, own_high = BANDS[kind]
    low, high = own_low if low is None else low, own_high if high is None else high
    if kind == "none" or not len(log_ratio):
        return Weighed(np.ones(len(log_ratio)), {})
    with np.errstate(over="ignore"):  # exp of a large log-ratio is inf, which every kind bounds
        ratio = np.exp(log_ratio)  # [K]
    if kind == "truncate":
        weight = np.minimum(ratio, high)  # [K]
        lost = {"importance_truncated": float((ratio > high).mean())}
    else:
        if kind == "sequence_mask":
            _, of, size = np.unique(sequence, return_inverse=True, return_counts=True)  # [K], [Q]
            with np.errstate(over="ignore"):
                mean = np.exp(np.bincount(of, log_ratio) / size)[of]  # [K] geometric mean of the decision's sequence
            kept = (low <= mean) & (mean <= high)  # [K]
            weight = kept.astype(np.float64)  # [K]
        else:
            kept = (low <= ratio) & (ratio <= high)  # [K]
            weight = np.where(kept, ratio, 0.0)  # [K]
        lost = {"importance_masked": float((~kept).mean())}
    return Weighed(weight, {"importance_mean": float(weight.mean()), **lost})
