"""What the trainer hands to the engines: the weights of every policy."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.model.loading import load_model
from agentrl.model.sections import ModelConfig


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights by policy, as models in this process.

    In one process they are references to the trainer's own models: whoever holds them may read them between two
    updates only.
    """

    models: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path, plans: Mapping[str, ModelConfig]) -> "Weights":
        """Weights that lie in `folder`/POLICY, such as those of a checkpoint.

        Args:
            folder: where.
            plans: each policy's section [model], for type and device.

        Raises:
            ValueError: a folder is missing or holds no model.
        """

        def stored(policy: str, plan: ModelConfig) -> ModelConfig:
            return plan.model_copy(update={"path": str(folder / policy), "new": None, "lora": None})

        return cls({policy: load_model(stored(policy, plan), 0).model for policy, plan in plans.items()})
