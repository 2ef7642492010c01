"""Options of a run that a training service takes and ignores, found out by a few small requests.

SkyRL's JAX back end drops the limit of the gradient norm and the choice of layers, and answers as if it had used them.
"""

import math

import numpy as np

from agentrl.engines.tinker import AdamStep, Datum, Service, ServiceError, Trainer
from agentrl.trainer import LearnerConfig

FLAGS = ("train_attn", "train_mlp", "train_unembed")
EQUAL = 1e-5  # relative; gradients over other layers differ by far more
IDS = np.arange(1, 10)  # token ids that every vocabulary has
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
    every, some = (_norm(_made(service, model, flags)) for flags in ({}, off))
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
    trainer = _made(service, model, {})
    try:
        before = _logprobs(trainer)
        _add_gradient(trainer, before)
        trainer.step(AdamStep(RATE, 0.9, 0.999, EPS, 0.0, TINY)).result()
        limited = _logprobs(trainer)
        _add_gradient(trainer, limited)
        trainer.step(AdamStep(RATE, 0.9, 0.999, EPS, 0.0, 0.0)).result()
        free = _logprobs(trainer)
    finally:
        trainer.unload()
    return bool(np.abs(limited - before).max() < 0.1 * np.abs(free - limited).max())


def _made(service: Service, model: str, flags: dict[str, bool]) -> Trainer:
    """A small model with these flags."""
    return service.train(model, rank=1, seed=0, **{**dict.fromkeys(FLAGS, True), **flags})


def _logprobs(trainer: Trainer) -> np.ndarray:
    """[L] the log-probs of a few tokens."""
    weights = np.ones(len(IDS) - 1, np.float32)
    return trainer.forward([Datum(IDS[:-1], IDS[1:], {"weights": weights})]).result().logprobs[0]


def _add_gradient(trainer: Trainer, now: np.ndarray) -> None:
    """Add the gradient of the sum of these log-probs; `now` [L] are their values."""
    columns = {"logprobs": now.astype(np.float32), "advantages": np.ones(len(now), np.float32)}
    trainer.forward_backward([Datum(IDS[:-1], IDS[1:], columns)]).result()


def _norm(trainer: Trainer) -> float | None:
    """The gradient norm of new adapters, which are then freed; None if the service does not report it."""
    try:
        _add_gradient(trainer, _logprobs(trainer))
        return trainer.step(AdamStep(0.0, 0.9, 0.999, EPS, 0.0, 0.0)).result().get("grad_norm")
    finally:
        trainer.unload()
