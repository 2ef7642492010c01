"""The seam between an update and the network that it changes: who computes the passes, and who holds the weights.

`agentrl.trainer.LocalPasses` computes them in this process. A training service computes them for a learner whose
weights are elsewhere (`agentrl.tinker`). Everything above is the same: mini-batches, losses, denominators, metrics.

Letters: see `agentrl.trainer.path_weights`; also R rows of a mini-batch.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from agentrl.graph import Tokens
from agentrl.trainer.meter import Meter
from agentrl.trainer.ranks import Ranks
from agentrl.trainer.sections import LearnerConfig, OptimConfig
from agentrl.trainer.work import Work


class PerToken(NamedTuple):
    """Log-probs [S], and entropies [S] if they were asked for, in nats."""

    logprob: np.ndarray
    entropy: np.ndarray | None


class StepReport(NamedTuple):
    """The result of an optimiser step.

    Attributes:
        grad_norm: the gradient norm before clipping; 0 if every gradient is exactly 0, so that no weight was moved;
            None if a training service does not tell it.
        skipped: True if the step was skipped because this norm is not finite.
    """

    grad_norm: float | None
    skipped: bool


class Passes(Protocol):
    """The passes through the network of a policy that annotation and updates need."""

    def total(self, x: np.ndarray) -> np.ndarray:
        """The sum of x over the processes that share the network; x itself if there is one."""
        ...

    def read(
        self,
        tokens: Tokens,
        rows: np.ndarray,
        *,
        temperature: float | np.ndarray,
        max_tokens: int,
        entropy: bool = False,
    ) -> PerToken:
        """The policy's log-probs [S] of the sampled tokens of `rows`, NaN elsewhere, float64, in nats.

        The log-prob is 0 for a sampled token without an alternative.

        Args:
            tokens: a token table.
            rows: int64, ascending.
            temperature: one number, of which 0 (greedy) counts as 1, or [N], one number above 0 per step.
            max_tokens: largest number of packed tokens per forward pass.
            entropy: also return the entropies [S] of the distributions from which the tokens were drawn.
        """
        ...

    def learning(self, seed: int) -> AbstractContextManager[None]:
        """The context of one update; `seed` seeds the noise of dropout, if there is any."""
        ...

    def accumulate(self, work: Work, rows: np.ndarray, share: np.ndarray, max_tokens: int, meter: Meter) -> bool:
        """Add the gradient of a mini-batch, and count its metrics.

        Args:
            work: what the update trains.
            rows: [R] int64, ascending, the rows of the mini-batch.
            share: [C] the weight of each copy in the loss of this mini-batch; 0 for copies of other rows.
            max_tokens: largest number of packed tokens per micro-batch.
            meter: counts the metrics.

        Returns:
            True if there is a target that can have a gradient.
        """
        ...

    def observe(self, work: Work, rows: np.ndarray, max_tokens: int, meter: Meter) -> None:
        """Count the metrics of rows that have no gradient: of a mini-batch, or of the rows that are not trained."""
        ...

    def means(self, meter: Meter) -> dict[str, float]:
        """The metrics of the update; see `Meter.means`."""
        ...


class PolicyLearner(Protocol):
    """What annotation and updates need of a learner: `agentrl.trainer.Learner`, or one at a training service.

    Attributes:
        updates: number of updates of this stage that are done.
        total_updates: number of updates of this stage.
        critic: the critic; None if there is none.
        half: is the policy computed in half precision?
        tokenizer: tokenizer of the policy.
    """

    updates: int
    total_updates: int
    critic: Any
    half: bool
    tokenizer: Any

    @property
    def meter(self) -> Callable[[], Meter]:
        """Makes what sums the metrics of an update."""
        ...

    @property
    def passes(self) -> Passes:
        """The passes through the policy's network."""
        ...

    @property
    def rate(self) -> float:
        """The factor by which the configured learning rates are multiplied in this update, from 0 to 1."""
        ...

    @property
    def has_reference(self) -> bool:
        """Is there a reference model?"""
        ...

    def reference(self) -> AbstractContextManager[Passes]:
        """The passes through the reference model, for use in a `with` block."""
        ...

    def step(self) -> StepReport:
        """Make one optimiser step with the accumulated gradients, then clear the gradients."""
        ...


class RunLearner(PolicyLearner, Protocol):
    """What a run needs of a learner besides: its stages, its weights for engines, and its checkpoints.

    Attributes:
        spent: share of the run's budget that is used up.
        config: section [learner].
        ranks: the processes that share the weights.
    """

    spent: float
    config: LearnerConfig
    ranks: Ranks

    @property
    def generating(self) -> Any:
        """The weights as engines take them; read them only between two updates."""
        ...

    def gather(self) -> None:
        """Make `generating` show the current weights."""
        ...

    def restart(self, optim: OptimConfig, updates: int) -> None:
        """Begin a stage of `updates` updates with a new optimiser and learning-rate schedule."""
        ...

    def notes(self, dtype: str) -> list[str]:
        """Notes for reports; `dtype` is the option of the recipe."""
        ...

    def save(self, folder: Path, model: Any) -> None:
        """Store the weights of `model`, which is `generating` or a way to read it, and the tokenizer in a folder."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint, without what `save` stores."""
        ...

    def load_state_dict(self, state: Mapping[str, Any], parts: Path | None = None) -> None:
        """Continue exactly from a `state_dict`; `parts` is the folder of the parts of a divided learner."""
        ...
