"""Training services that speak Tinker's protocol as a catalogue entry, and the client for them.

In training, the learner of the run (learner.name=tinker) holds the connection, and this engine samples its snapshots.
Without a learner, `url` and `path` name weights to evaluate.
"""

from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from agentrl.engines.entry import Demands, EngineOptions, Serving
from agentrl.engines.tinker.address import check_key, service_address
from agentrl.engines.tinker.sdk import (
    AdamStep,
    Datum,
    Passed,
    Pending,
    Sampled,
    Service,
    ServiceError,
    ServiceLost,
    ServiceSampler,
    Trainer,
    check_installed,
)
from agentrl.engines.tinker.service_data import aligned

if TYPE_CHECKING:
    from agentrl.engines.tinker.engine import TinkerEngine

__all__ = [
    "AdamStep",
    "Config",
    "Datum",
    "Passed",
    "Pending",
    "Sampled",
    "Service",
    "ServiceError",
    "ServiceLost",
    "ServiceSampler",
    "Trainer",
    "aligned",
    "check_key",
    "close",
    "make",
    "service_address",
]

WEIGHTS = True
FOLDERS = True  # `load` takes what the learner hands in, which no model of this process can hold


class Config(EngineOptions, frozen=True):
    """Options of a training service as an engine. `agentrl eval` sets all but max_context from a run's checkpoint; they
    are for evaluation without a learner, and a recipe cannot set them.

    Attributes:
        actions: free; the protocol cannot restrict an answer to listed actions.
        url: address of the service; empty for the variable TINKER_BASE_URL or, without it, the hosted service.
        path: the weights to sample, such as tinker://.../sampler_weights/NAME. Needed if `model` is empty.
        model: the base model to sample. Needed if `path` is empty.
        checkpoint: weights and optimiser of the same time (tinker://.../weights/NAME). If the service cannot sample
            `path`, it loads these as a model and samples that: SkyRL samples only what is loaded.
        timeout_s: seconds to wait for one answer of the service.
    """

    url: str = ""
    path: str = ""
    model: str = ""
    checkpoint: str = ""
    timeout_s: float = Field(3600.0, gt=0)

    @model_validator(mode="after")
    def _one_source(self) -> "Config":
        if self.path and self.model:
            raise ValueError(
                "set engine.path (weights that were saved) or engine.model (a base model), not both: leave one out"
            )
        return self


def check(config: Config, demands: Demands) -> None:
    """Raises ValueError if a run needs something that the protocol of training services does not have."""
    sampling = demands.sampling
    _check_free(config)
    for option in ("url", "path", "model", "checkpoint", "timeout_s"):
        if getattr(config, option) != Config.model_fields[option].default:
            raise ValueError(
                f"engine.{option} is for evaluation without a learner: in training, set "
                f"learner.{'model' if option == 'path' else option}, and leave engine.{option} out"
            )
    if demands.deterministic:
        raise ValueError(
            "with engine.name=tinker answers come from a service that does not promise to repeat them: set "
            "run.deterministic=false"
        )
    if sampling.temperature != 1:
        raise ValueError(
            f"sampling.temperature = {sampling.temperature:g}: a training service computes the log-probs of training "
            "at temperature 1, so rollouts need it too: set sampling.temperature=1 (eval.temperature may differ)"
        )
    if sampling.truncates:
        option, off = ("top_k", 0) if sampling.top_k else ("top_p", 1)
        raise ValueError(
            f"sampling.{option} = {getattr(sampling, option)}: a training service computes the log-probs of training "
            f"among all tokens, so rollouts must be sampled among all: set sampling.{option}={off}"
        )
    if demands.entropies:
        raise ValueError(
            "the rollout method needs entropies, and a training service returns only the log-prob of each token: "
            "choose another [rollout]"
        )
    if demands.nats:
        raise ValueError(
            "log.entropies needs the entropies of answers, and a training service returns only the log-prob of each "
            "token: set log.entropies=false"
        )


def make(config: Config, serving: Serving) -> "TinkerEngine":
    """An engine that samples `serving.model` (`agentrl.model.ServedWeights`), or what `config` names.

    Raises:
        ValueError: there is nothing to sample, the service refuses it, or an option asks for what it cannot do.
    """
    from agentrl.engines.hf.forwards import end_ids
    from agentrl.engines.tinker.engine import TinkerEngine, sampler_of, stored_sampler

    _check_free(config)
    if serving.entropies or serving.nats:
        raise ValueError("a training service returns no entropies: set log.entropies=false, or choose another engine")
    service = None
    if config.path or config.model:
        service = Service(config.url, timeout_s=config.timeout_s, section="engine")
    try:
        return TinkerEngine(
            sampler_of(serving.model) if service is None else stored_sampler(service, config),
            serving.tokenizer,
            serving.sampling,
            end_ids=end_ids(None, serving.tokenizer, serving.end_ids),
            max_context=config.max_context,
            trains=service is None and serving.beside is None,
            version=serving.version,
            owned=service,
        )
    except BaseException:
        if service is not None:
            service.close()
        raise


def close(engine: "TinkerEngine") -> None:
    """Close the connection that was made for this engine, if there is one."""
    engine.close()


def check_here(config: Config) -> None:
    """Raises ValueError if the client of training services is not installed."""
    check_installed()


def _check_free(config: Config) -> None:
    if config.actions != "free":
        raise ValueError(
            f"engine.actions={config.actions}: a training service cannot restrict an answer to listed actions: set "
            "engine.actions=free and, so that only answers in the right format are trained, update.train_invalid=false"
        )
