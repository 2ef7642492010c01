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
        self.skipped = 0

    def add(
        self, tokens: int, loss: Tensor, share: Tensor, values: Mapping[str, Tensor | None], decisions: int
    ) -> None:
        """Count a micro-batch.

        Args:
            tokens: number of packed tokens of the micro-batch.
            loss: loss of the micro-batch, a scalar.
            share: [X] the weight of each target of the copies in the means of `values`.
            values: name -> [X], one value per target of the copies; None is left out.
            decisions: number of targets of the micro-batch.
        """
        named = {"loss": loss.detach(), "share": share.sum()}
        named |= {name: (share * x.detach()).sum() for name, x in values.items() if x is not None}
        for name, x in named.items():
            self.sums[name] = self.sums[name] + x if name in self.sums else x
        self.counts["packed_tokens"] += tokens
        self.counts["decision_tokens"] += decisions
        self.counts["microbatches"] += 1

    def step(self, grad_norm: float, skipped: bool) -> None:
        """Count an optimiser step."""
        self.counts["optimizer_steps"] += 1
        self.skipped += skipped
        if not skipped:
            self.norms.append(grad_norm)

    def means(self, ranks: Ranks = ALONE) -> dict[str, float]:
        """The mean loss per optimiser step, the weighted means of the other values, counts, and the gradient norm.

        The gradient norm is the mean over the optimiser steps that were not skipped. Sums and counts are those of all
        ranks together. The number of optimiser steps and their gradient norms are the same on each rank.
        """
        sums = ranks.total_by_name({name: float(x) for name, x in self.sums.items()})
        counted = ranks.total_by_name({name: x for name, x in self.counts.items() if name != "optimizer_steps"})
        steps = self.counts["optimizer_steps"]
        share = sums.pop("share", 0.0)
        loss = sums.pop("loss", 0.0) / max(steps, 1.0)
        means = {name: x / share for name, x in sums.items()} if share else {}
        norm = sum(self.norms) / len(self.norms) if self.norms else 0.0
        counts = {name: counted.get(name, steps) for name in self.counts}
        return {"loss": loss, **means, "grad_norm": norm, "skipped_steps": float(self.skipped), **counts}
