"""The weights of every policy, as the trainer hands them to the engines."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.model.loading import load_model
from agentrl.model.sections import ModelConfig

State = Mapping[str, Mapping[str, Any]]  # policy -> name of a tensor -> tensor


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights by name of the policy, as models in this process.

    Within one process the models are the trainer's own objects, not copies: read them only between two updates.
    """

    models: Mapping[str, Any]

    def copy(self) -> "Weights":
        """The same weights in memory of their own, to generate with while the trainer changes its own."""
        return Weights({name: deepcopy(model).eval() for name, model in self.models.items()})

    def state(self) -> State:
        """A copy of every tensor that training may change: trained parameters (of adapters alone, if there are any) and
        buffers."""
        return {
            policy: {name: tensor.detach().clone() for name, tensor in _changing(model).items()}
            for policy, model in self.models.items()
        }

    def take(self, state: State) -> None:
        """Copy the tensors of `state` into these models, which must be of the same kind."""
        import torch

        with torch.no_grad():
            for policy, tensors in state.items():
                own = _changing(self.models[policy])
                for name, tensor in tensors.items():
                    own[name].copy_(tensor)

    @classmethod
    def read(cls, folder: Path, plans: Mapping[str, ModelConfig]) -> "Weights":
        """The weights in `folder`/POLICY, such as those of a checkpoint.

        Args:
            folder: holds one model folder per policy.
            plans: section [model] of each policy, for the type and the device of the weights.

        Raises:
            ValueError: a folder is missing or holds no model.
        """

        def stored(policy: str, plan: ModelConfig) -> ModelConfig:
            return plan.model_copy(update={"path": str(folder / policy), "new": None, "lora": None})

        return cls({policy: load_model(stored(policy, plan), 0).model for policy, plan in plans.items()})


def _changing(model: Any) -> dict[str, Any]:
    """The tensors that training may change, by name; tied weights once."""
    trained = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
    return {**trained, **dict(model.named_buffers())}
