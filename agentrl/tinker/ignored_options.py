"""Options of a run that a training service takes and ignores, found out by a few small requests.

SkyRL's JAX back end drops the limit of the gradient norm and the choice of layers, and answers as if it had used them.
"""

import math
from collections.abc import Mapping

import numpy as np

from agentrl.engines.tinker import AdamStep, Service, ServiceError, Trainer
from agentrl.tinker.sums import IDS, STILL, add_gradient, logprobs, sequence, small_model
from agentrl.trainer import LearnerConfig

FLAGS = ("train_attn", "train_mlp", "train_unembed")
EQUAL = 1e-5  # relative; gradients over other layers differ by far more
WHOLE = sequence(len(IDS) - 1)
RATE = 1e-3
EPS = 1e-8
TINY = 1e-12  # a limit of the gradient norm far below EPS, so that a limited step of AdamW moves nothing


def check_flags(service: Service, model: str, config: LearnerConfig) -> None:
    """Does the service train only the layers that `learner.train_*` name?

    Without gradient norms in the service's answers, this cannot be found out, and nothing is raised.

    Args:
        service: the connection.
        model: name of the base model.
        config: section [learner].

    Raises:
        ServiceError: it trains the same adapters whatever the options say.
        ServiceLost: the service gives no answer.
    """
    off = {name: False for name in FLAGS if not getattr(config, name)}
    if not off:
        return
    every, some = (_norm(service, model, flags) for flags in ({}, off))
    if every is not None and some is not None and math.isclose(every, some, rel_tol=EQUAL):
        named = " and ".join(f"learner.{name}=false" for name in off)
        raise ServiceError(
            f"{service.url} ignores {named}: its gradients are the same without; leave out "
            f"{', '.join(f'learner.{name}' for name in off)}, or choose another service"
        )


def clips_gradients(service: Service, model: str) -> bool:
    """Does the service limit the norm of gradients, if a step asks for it?

    Raises:
        ServiceError, ServiceLost: the service refuses a small model, or gives no answer.
    """
    with small_model(lambda: _new(service, model, {})) as trainer:
        before = logprobs(trainer, WHOLE)
        add_gradient(trainer, WHOLE, before)
        trainer.step(AdamStep(RATE, 0.9, 0.999, EPS, 0.0, TINY)).result()
        limited = logprobs(trainer, WHOLE)
        add_gradient(trainer, WHOLE, limited)
        trainer.step(AdamStep(RATE, 0.9, 0.999, EPS, 0.0, 0.0)).result()
        free = logprobs(trainer, WHOLE)
    return bool(np.abs(limited - before).max() < 0.1 * np.abs(free - limited).max())


def _new(service: Service, model: str, flags: Mapping[str, bool]) -> Trainer:
    """A small model with these flags."""
    return service.train(model, rank=1, seed=0, **{**dict.fromkeys(FLAGS, True), **flags})


def _norm(service: Service, model: str, flags: Mapping[str, bool]) -> float | None:
    """The gradient norm of new adapters with these flags; None if the service does not report it."""
    with small_model(lambda: _new(service, model, flags)) as trainer:
        add_gradient(trainer, WHOLE, logprobs(trainer, WHOLE))
        return trainer.step(STILL).result().get("grad_norm")
