"""The weights of every policy, as the trainer hands them to the engines."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from agentrl.model.divided import DividedModel
from agentrl.model.loading import load_model
from agentrl.model.sections import ModelConfig

State = Mapping[str, Mapping[str, Any]]  # policy -> name of a tensor -> tensor
SERVED = "served"  # name under which a state holds `ServedWeights`


class Mark(NamedTuple):
    """Identifies weights: `load` rises by 1 whenever weights are loaded, `version` is the version of the weights.

    The version alone is not unique: a run with a warm-up loads version 0 twice, before the cloning and after it.
    """

    load: int
    version: int


class WeightFolder(NamedTuple):
    """Weights in files, such as those that another process has written.

    Attributes:
        path: a folder that `agentrl.model.publish` or `save_model` wrote, or a folder of adapters (`publish_adapter`).
        adapter: true: the folder holds no whole weights but adapters, for the weights that the engine loaded first.
    """

    path: Path
    adapter: bool = False


class ServedWeights(NamedTuple):
    """Weights that a training service holds: a snapshot of one version, which never changes.

    Attributes:
        sampler: the connection to the snapshot, for the engine `tinker`.
        path: name of the snapshot at the service; empty if it has no lasting name.
    """

    sampler: Any
    path: str = ""


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights of each policy, by the policy's name: a model, a `DividedModel`, a `WeightFolder`, or
    `ServedWeights`.

    A model may be the trainer's own object, not a copy: read it only between two updates. A folder must stay until the
    next weights are loaded, because a server that is started again reads it.
    """

    models: dict[str, Any]

    def copy(self) -> "Weights":
        """A copy of the weights, with which an engine generates while the trainer changes the original.

        The copy of a `DividedModel` is in the CPU's memory.
        """

        def copied(model: Any) -> Any:
            if isinstance(model, ServedWeights):
                return model
            return model.copy() if isinstance(model, DividedModel) else deepcopy(model).eval()

        return Weights({name: copied(model) for name, model in self.models.items()})

    def state(self) -> State:
        """A copy of every tensor that training may change: the buffers and the trained parameters.

        If a model has adapters, its trained parameters are those of the adapters. `ServedWeights` are their own copy.
        """
        return {
            policy: {SERVED: model}
            if isinstance(model, ServedWeights)
            else {name: tensor.detach().clone() for name, tensor in _changing(model).items()}
            for policy, model in self.models.items()
        }

    def take(self, state: State) -> None:
        """Copy the tensors of `state` into these models, which must have tensors of the same names and shapes.

        `ServedWeights` are replaced by those of the state.
        """
        import torch

        with torch.no_grad():
            for policy, tensors in state.items():
                if SERVED in tensors:
                    self.models[policy] = tensors[SERVED]
                    continue
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
        return cls({policy: WeightFolder(folder / policy) for policy in plans}).opened(plans)

    def opened(self, plans: Mapping[str, ModelConfig]) -> "Weights":
        """The same weights with every folder read into a model of this process.

        Args:
            plans: section [model] of each policy, for the type and the device of the weights.

        Raises:
            ValueError: a folder is missing, holds no model, or holds adapters alone.
        """

        def stored(policy: str, folder: WeightFolder) -> Any:
            if folder.adapter:
                raise ValueError(
                    f"{folder.path} holds adapters alone, and the embedded engine loads whole weights: publish merged "
                    "weights, or set engine.name=vllm and engine.lora=adapter"
                )
            options = {"path": str(folder.path), "new": None, "lora": None}
            return load_model(plans[policy].model_copy(update=options), 0).model

        models = self.models.items()
        return Weights({name: stored(name, one) if isinstance(one, WeightFolder) else one for name, one in models})


def _changing(model: Any) -> dict[str, Any]:
    """The tensors that training may change, by name; tied weights appear under one name.

    If the learner is divided over processes and process 0 keeps a whole copy of the model, no parameter of this copy is
    marked as trained. All parameters of such a model are returned.
    """
    if isinstance(model, DividedModel):
        return model.changing()
    every = dict(model.named_parameters())
    trained = {name: tensor for name, tensor in every.items() if tensor.requires_grad}
    return {**(trained or every), **dict(model.named_buffers())}
