"""EPO's entropy term over the updates of a stage: bonus, band, and the history that the band lies around.

Letters: N steps, T tokens of a micro-batch.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from agentrl.loss import LossInputs
from agentrl.trainer.regularizers import band_weight, entropy_band
from agentrl.trainer.sections import EpoConfig


class PastEntropy:
    """Mean over past updates of the mean entropy at each turn, in nats.

    Departure: an update counts at the turns that it saw, and a turn never seen has no band. The released code takes
    1.0 nat in both places.
    """

    def __init__(self) -> None:
        self.total: list[float] = []
        self.updates: list[int] = []

    def at(self, turn: np.ndarray) -> np.ndarray:
        """[N] float64 history at `turn` [N]; NaN where nothing is known."""
        updates = np.array([*self.updates, 0])  # [turns + 1]
        with np.errstate(invalid="ignore"):
            mean = np.array([*self.total, 0.0]) / updates  # [turns + 1]
        known: np.ndarray = mean[np.minimum(turn, len(mean) - 1)]
        return known

    def add(self, mean: np.ndarray) -> None:
        """An update: its mean entropy at each turn [turns], NaN where it had no decision."""
        longer = max(0, len(mean) - len(self.total))
        self.total += [0.0] * longer
        self.updates += [0] * longer
        for turn in np.flatnonzero(~np.isnan(mean)).tolist():
            self.total[turn] += float(mean[turn])
            self.updates[turn] += 1

    def state_dict(self) -> dict[str, Any]:
        """Everything, exactly."""
        return {"total": list(self.total), "updates": list(self.updates)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken; an empty state is an empty history."""
        self.total, self.updates = list(state.get("total", [])), list(state.get("updates", []))


class EpoOutput(NamedTuple):
    """Loss of each token [T], and the band's penalty on it [T]."""

    per_token: Tensor
    band: Tensor


class EpoTerm:
    """EPO in one update. It is judged by the updates before; what it sees is kept for those to come.

    Departure: entropies are those of the update's own passes, which for a single optimiser step are the sampling
    policy's, as released.

    Args:
        past: the history, which `remember` adds to.
        turn: [N] int64 of each row of the graph.
        update, updates: number of this update and length of the stage, for the band's weight.
    """

    def __init__(self, config: EpoConfig, past: PastEntropy, turn: np.ndarray, update: int, updates: int) -> None:
        self.config, self.past = config, past
        self.turn = torch.from_numpy(np.asarray(turn, np.int64))  # [N]
        self.history = torch.from_numpy(past.at(turn))  # [N]
        self.weight = config.weight * (band_weight(update, max(updates, 1)) if config.decay else 1.0)
        self.seen = torch.zeros(2, int(turn.max(initial=-1)) + 1, dtype=torch.float64)  # sum and count of each turn

    def __call__(self, inputs: LossInputs) -> EpoOutput:
        """The term of a micro-batch, times each step's W."""
        assert inputs.entropy is not None
        history = self.history.to(inputs.entropy)[inputs.step]  # [T]
        band = entropy_band(
            inputs.entropy,
            history.nan_to_num(nan=1.0),
            low=self.config.low,
            high=self.config.high,
            penalty=self.config.penalty,
            step=inputs.step if self.config.mode == "step" else None,
            differentiable=self.config.differentiable,
        )
        band = band * ~history.isnan()  # [T]
        self._see(inputs.entropy.detach(), inputs)
        return EpoOutput(-self.config.coef * inputs.weight * (inputs.entropy - self.weight * band), band.detach())

    def remember(self) -> None:
        """Add what was seen to the history."""
        sums, counts = self.seen.cpu().numpy()
        with np.errstate(invalid="ignore"):
            self.past.add(sums / counts)

    def _see(self, entropy: Tensor, inputs: LossInputs) -> None:
        self.seen = self.seen.to(entropy.device)
        turn = self.turn.to(entropy.device)[inputs.step]  # [T]
        weighted = torch.stack([inputs.weight * entropy, inputs.weight]).to(self.seen.dtype)  # [2, T]
        self.seen.index_add_(1, turn, weighted)
