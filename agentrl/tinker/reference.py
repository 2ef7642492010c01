"""The reference model of a policy at a training service."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from agentrl.engines.tinker import Datum, Service, ServiceError

Reads = Literal["sampler", "model"]


class Frozen(NamedTuple):
    """Where a service keeps a reference model, as a checkpoint stores it.

    Attributes:
        path: of weights for samplers, or of weights and optimiser; empty for the base model.
        reads: `sampler`: a sampler returns the log-probs of prompts. `model`: a second model computes forward passes,
            where a service's samplers return none.
    """

    path: str
    reads: Reads


class ReferenceModel:
    """A model at the service that is only read.

    Args:
        service: the connection.
        frozen: where it is.
        base: name of the base model.

    Raises:
        ServiceError: the service no longer has it, or has no room for a second model.
    """

    def __init__(self, service: Service, frozen: Frozen, base: str) -> None:
        self.frozen = frozen
        self._sampler: Any = None
        self._model: Any = None
        if frozen.reads == "sampler":
            self._sampler = service.sampler(path=frozen.path) if frozen.path else service.sampler(model=base)
            return
        try:
            if frozen.path:
                self._model = service.resume(frozen.path, optimiser=False)
            else:  # new adapters change nothing
                self._model = service.train(base, rank=1, seed=0, train_attn=True, train_mlp=True, train_unembed=False)
        except ServiceError as error:
            raise ServiceError(
                f"{error}. The samplers of this service return no log-probs of prompts, so the reference model of "
                "update.kl_coef needs a second model there: set update.kl_coef=0"
            ) from None

    def logprobs(self, paths: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Per path [n] of ids the log-probs [n] of its tokens, float64; the first of each is NaN."""
        if self._sampler is not None:
            found: list[np.ndarray] = self._sampler.logprobs(paths)
            return found
        data = [Datum(ids[:-1], ids[1:], {"weights": np.ones(len(ids) - 1, np.float32)}) for ids in paths]
        return [np.append(np.nan, one) for one in self._model.forward(data).result().logprobs]

    def close(self) -> None:
        """Free the second model, if there is one."""
        if self._model is not None:
            self._model.unload()


def keep(trainer: Any, name: str, reads: Reads) -> Frozen:
    """Store the current weights of a model at the service for ever, because a run may last longer than checkpoints."""
    return Frozen((trainer.save_sampler if reads == "sampler" else trainer.save)(name, None), reads)
