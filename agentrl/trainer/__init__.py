"""Training: learner, critic, annotation, policy update, behaviour cloning."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrl.trainer.annotation import Annotated, annotate, logprobs
    from agentrl.trainer.cloning import clone
    from agentrl.trainer.critic import critic_maker, trunk_gradient
    from agentrl.trainer.kl_reward import charge_kl
    from agentrl.trainer.learner import Learner
    from agentrl.trainer.memory import Need, forecast_update
    from agentrl.trainer.policy_update import update
    from agentrl.trainer.ranks import Ranks
    from agentrl.trainer.regularizer import Moment, Regularizer, RegularizerFile, Regularizers
    from agentrl.trainer.sections import CriticConfig, LearnerConfig, OptimConfig, UpdateConfig
    from agentrl.trainer.temperatures import step_temperatures

__all__ = [
    "Annotated",
    "CriticConfig",
    "Learner",
    "LearnerConfig",
    "Moment",
    "Need",
    "OptimConfig",
    "Ranks",
    "Regularizer",
    "RegularizerFile",
    "Regularizers",
    "UpdateConfig",
    "annotate",
    "charge_kl",
    "clone",
    "critic_maker",
    "forecast_update",
    "logprobs",
    "step_temperatures",
    "trunk_gradient",
    "update",
]

_HOME = {
    "Annotated": "agentrl.trainer.annotation",
    "CriticConfig": "agentrl.trainer.sections",
    "Learner": "agentrl.trainer.learner",
    "LearnerConfig": "agentrl.trainer.sections",
    "Moment": "agentrl.trainer.regularizer",
    "Need": "agentrl.trainer.memory",
    "OptimConfig": "agentrl.trainer.sections",
    "Ranks": "agentrl.trainer.ranks",
    "Regularizer": "agentrl.trainer.regularizer",
    "RegularizerFile": "agentrl.trainer.regularizer",
    "Regularizers": "agentrl.trainer.regularizer",
    "UpdateConfig": "agentrl.trainer.sections",
    "annotate": "agentrl.trainer.annotation",
    "charge_kl": "agentrl.trainer.kl_reward",
    "clone": "agentrl.trainer.cloning",
    "critic_maker": "agentrl.trainer.critic",
    "forecast_update": "agentrl.trainer.memory",
    "logprobs": "agentrl.trainer.annotation",
    "step_temperatures": "agentrl.trainer.temperatures",
    "trunk_gradient": "agentrl.trainer.critic",
    "update": "agentrl.trainer.policy_update",
}


def __getattr__(name: str) -> Any:
    """Import the module of a public name when the name is first used."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
