"""The weights of every policy, as the trainer hands them to the engines."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from agentrl.model.loading import load_model
from agentrl.model.sections import ModelConfig


class WeightFolder(NamedTuple):
    """Weights in files that another process has written.

    Attributes:
        path: a folder of `agentrl.model.publish`, or of peft adapters (`publish_adapter`).
        adapter: it holds adapters of the model that the engine began with, and no whole weights.
    """

    path: Path
    adapter: bool = False


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights by name of the policy: each a model in this process, or a `WeightFolder`.

    Within one process the models are the trainer's own objects, not copies: read them only between two updates. A
    folder must stay until the next weights are loaded, because a server that is started again reads it.
    """

    models: Mapping[str, Any]

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
