"""The reference model of a policy at a training service."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from agentrl.engines.tinker import Datum, Service, ServiceError
from agentrl.tinker.sums import keeps_snapshots, probe_prompt_logprobs

Reads = Literal["sampler", "model"]


class Frozen(NamedTuple):
    """Where a service keeps a reference model, as a checkpoint stores it.

    Attributes:
        path: of weights for samplers, or of weights and optimiser; empty for the base model.
        reads: `sampler`: a sampler returns the log-probs of prompts. `model`: a second model computes forward passes,
            where a service's samplers return none, or have the place of the trained model for their weights.
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
                f"{error}. At this service a sampler cannot be the reference model of update.kl_coef, so a second "
                "model must have room: set update.kl_coef=0"
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


def how_to_read(service: Service, model: str, trainer: Any, initial: bool) -> Reads:
    """What can be the reference model at a service.

    A sampler can, if it returns log-probs of prompts and has a place of its own for its weights, which a sampler of the
    base model has everywhere.

    Args:
        service: the connection.
        model: name of the base model.
        trainer: the model that is trained.
        initial: the reference is the base model.
    """
    if probe_prompt_logprobs(trainer) == "none":
        return "model"
    return "sampler" if initial or keeps_snapshots(service, model) else "model"


def keep(trainer: Any, name: str, reads: Reads) -> Frozen:
    """Store the current weights of a model at the service for ever, because a run may last longer than checkpoints."""
    return Frozen((trainer.save_sampler if reads == "sampler" else trainer.save)(name, None), reads)
