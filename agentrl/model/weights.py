"""The weights of every policy, as the trainer hands them to the engines."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.model.loading import load_model
from agentrl.model.sections import ModelConfig


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights by name of the policy, as models in this process.

    Within one process the models are the trainer's own objects, not copies: read them only between two updates.
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

        def stored(policy: str, plan: ModelConfig) -> ModelConfig:
            return plan.model_copy(update={"path": str(folder / policy), "new": None, "lora": None})

        return cls({policy: load_model(stored(policy, plan), 0).model for policy, plan in plans.items()})
