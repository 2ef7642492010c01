"""What the file of an engine offers, and what `make` gets: a model, its tokenizer and how to sample from it.

The file offers a frozen pydantic `Config` (an `EngineOptions`) and `make(config, serving) -> Policy`. It must not
import torch when it is imported, because recipes are read without torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from agentrl.catalogue import CatalogueFile, hook
from agentrl.engines.policy import Policy
from agentrl.engines.sampling import Sampling


class EngineOptions(BaseModel, frozen=True, extra="forbid"):
    """Options that every engine has.

    Attributes:
        max_context: most tokens per sequence, prompt and answer together.
        actions: free text; or admissible, which restricts answers to the admissible actions by a token trie (the
            masked distribution is the behaviour distribution) and refuses a step that lists none; or listed, which is
            admissible where a step lists its actions and free where it lists none.
    """

    max_context: int = Field(1024, ge=8)
    actions: Literal["free", "admissible", "listed"] = "free"


@dataclass(frozen=True, kw_only=True, eq=False)
class Serving:
    """What an engine serves: a model, its tokenizer and how to sample from it.

    Attributes:
        model: the transformers model (or peft around one), shared with the trainer.
        tokenizer: its tokenizer.
        sampling: the sampling distribution, stop strings included.
        deterministic: batches must not depend on timing.
        entropies: compute the entropy of each token's distribution (`Generation.entropy`).
        nats: compute `Generation.entropy_nats`.
        version: version of the weights.
    """

    model: Any
    tokenizer: Any
    sampling: Sampling
    deterministic: bool = False
    entropies: bool = False
    nats: bool = False
    version: int = 0


@dataclass(frozen=True, kw_only=True)
class EngineFile(CatalogueFile):
    """The file of an engine; see the module.

    Attributes:
        make: see the module.
        weights: the engine generates with the trainer's weights: its policies have `load(model, version)`, which a run
            calls between two batches of rollouts. A run can only train with such an engine.
    """

    KIND: ClassVar[str] = "engine"

    make: Callable[[Any, Serving], Policy] = hook(help="(config, serving) -> Policy")
    weights: bool = hook("WEIGHTS", "it generates with the trainer's weights", False)
