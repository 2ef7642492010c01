"""Adds up the metrics of an update."""

from collections.abc import Mapping

from torch import Tensor

from agentrl.trainer.ranks import ALONE, Ranks


class Meter:
    """The sums of an update's metrics. They stay on the device until `means` reads them."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.counts = {"packed_tokens": 0.0, "decision_tokens": 0.0, "microbatches": 0.0, "optimizer_steps": 0.0}
        self.norms: list[float] = []
        self.skipped = self.unknown_norms = 0
        self.moved = False  # has an optimiser step moved the weights?

    def add(self, tokens: int, loss: Tensor, decisions: int) -> None:
        """Count a micro-batch that was trained.

        Args:
            tokens: number of packed tokens of the micro-batch.
            loss: loss of the micro-batch, a scalar.
            decisions: number of targets of the micro-batch.
        """
        self._add({"loss": loss.detach()})
        self.counts["packed_tokens"] += tokens
        self.counts["decision_tokens"] += decisions
        self.counts["microbatches"] += 1

    def observe(self, weight: Tensor, values: Mapping[str, Tensor | None]) -> None:
        """Count values of decisions, trained or not.

        Args:
            weight: [X] the weight of each target of the copies in the means of `values`.
            values: name -> [X], one value per target of the copies; None is left out.
        """
        named = {name: (weight * x.detach()).sum() for name, x in values.items() if x is not None}
        self._add({"weight": weight.sum(), **named})

    def _add(self, named: Mapping[str, Tensor]) -> None:
        for name, x in named.items():
            self.sums[name] = self.sums[name] + x if name in self.sums else x

    def step(self, grad_norm: float | None, skipped: bool) -> None:
        """Count an optimiser step, also a step that moved no weight; `grad_norm` is None if it is not known."""
        self.counts["optimizer_steps"] += 1
        self.moved |= not skipped and grad_norm != 0
        self.skipped += skipped
        if grad_norm is None:
            self.unknown_norms += 1
        elif not skipped:
            self.norms.append(grad_norm)

    def means(self, ranks: Ranks = ALONE) -> dict[str, float]:
        """The mean loss per optimiser step, the means of the other values over the decisions, counts, gradient norm.

        The gradient norm is the mean over the optimiser steps that were not skipped. Sums and counts are those of all
        ranks together. The number of optimiser steps and their gradient norms are the same on each rank. If a training
        service does not tell its gradient norms, there is no mean of them.
        """
        sums = ranks.total_by_name({name: float(x) for name, x in self.sums.items()})
        counted = ranks.total_by_name({name: x for name, x in self.counts.items() if name != "optimizer_steps"})
        steps = self.counts["optimizer_steps"]
        weight = sums.pop("weight", 0.0)
        loss = sums.pop("loss", 0.0) / max(steps, 1.0)
        means = {name: x / weight for name, x in sums.items()} if weight else {}
        norm = {"grad_norm": sum(self.norms) / len(self.norms) if self.norms else 0.0}
        counts = {name: counted.get(name, steps) for name in self.counts}
        norm = {} if self.unknown_norms else norm
        return {"loss": loss, **means, **norm, "skipped_steps": float(self.skipped), **counts}
