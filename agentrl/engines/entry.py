"""The hooks of an engine's file, and the arguments of its `make`: a model, its tokenizer and how to sample from it.

The file offers a frozen pydantic `Config`, which has at least the options of `EngineOptions`, and
`make(config, serving) -> Policy`. It must not import torch when it is imported, because recipes are read without torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from pydantic import BaseModel, Field

from agentrl.catalogue import CatalogueFile, hook
from agentrl.engines.policy import Policy
from agentrl.engines.sampling import Sampling
from agentrl.model import shell_of


class EngineLost(ConnectionError):
    """A server of the engine was lost and could not be brought back. The run ends, and can be resumed."""


class Launcher(Protocol):
    """Starts the servers of an engine somewhere else, such as on the machines of a cluster.

    Attributes:
        count: number of servers.
        near: do all servers run on this machine, so that they see its files?
    """

    count: int
    near: bool

    def start(self, number: int, command: Any, model: Path) -> Any:
        """Start server `number` with the weights in folder `model`; returns the started server."""
        ...


class EngineOptions(BaseModel, frozen=True, extra="forbid"):
    """Options that every engine has.

    Attributes:
        max_context: largest number of tokens per sequence, prompt and answer together.
        actions: `free` lets the model write any text. `admissible` restricts answers to the admissible actions by a
            token trie, and the log-probabilities are those of the restricted distribution. A step without admissible
            actions is then an error, except if the answer rewrites the agent's memory. `listed` restricts answers in
            the steps whose observations list actions, and leaves answers free in the other steps.
    """

    max_context: int = Field(1024, ge=8)
    actions: Literal["free", "admissible", "listed"] = "free"


@dataclass(frozen=True, kw_only=True, eq=False)
class Serving:
    """The model that an engine serves, its tokenizer and how to sample from it.

    Attributes:
        model: a transformers model or a peft model around one, which is the trainer's own object; for engines with
            FOLDERS = True also a `WeightFolder`, or the `DividedModel` of a learner that is divided over processes.
        tokenizer: tokenizer of the model.
        sampling: the sampling distribution, stop strings included.
        deterministic: batches must not depend on timing.
        entropies: compute `Generation.entropy`, the entropy over the ten most probable tokens.
        nats: compute `Generation.entropy_nats`, the entropy of the whole distribution.
        version: version of the weights.
        beside: an existing engine with the same weights, or None. An engine for evaluation gets the engine for training
            here, and may share its servers.
        launcher: starts the servers of the engine; None starts them on this machine.
        policy: the name of the policy in the recipe.
        end_ids: ids that end an answer (`Chat.end_ids`), beside those that the model and the tokenizer name.
    """

    model: Any
    tokenizer: Any
    sampling: Sampling
    deterministic: bool = False
    entropies: bool = False
    nats: bool = False
    version: int = 0
    beside: Any = None
    launcher: Launcher | None = None
    policy: str = ""
    end_ids: frozenset[int] = frozenset()

    @property
    def shell(self) -> Any:
        """The model whose configuration can be read: `model`, or the shell of a `DividedModel`."""
        return shell_of(self.model)


class Demands(NamedTuple):
    """The demands of a run on its engine; `EngineFile.check` gets them before a model is loaded.

    Attributes:
        sampling: the sampling distribution of training rollouts.
        deterministic: batches must not depend on timing.
        entropies: see `Serving`.
        policies: number of policies, each with an engine of its own.
        lora: at least one policy trains adapters.
        staleness: number of updates that may happen while rollouts are played (`run.staleness`).
        nats: see `Serving`.
    """

    sampling: Sampling
    deterministic: bool
    entropies: bool
    policies: int
    lora: bool
    staleness: int = 0
    nats: bool = False


@dataclass(frozen=True, kw_only=True)
class EngineFile(CatalogueFile):
    """The file of an engine; see the module.

    Attributes:
        make: see the module.
        weights: the engine generates with the trainer's weights: its policies have `load(model, version)`, which a run
            calls after updates. A run can only train with such an engine.
        folders: `load` takes a model, a `WeightFolder` or a `DividedModel`, so that process 0 of a divided learner
            needs no undivided copy of the weights. For an engine without FOLDERS = True, a run reads a folder into a
            model before it calls `load`, and process 0 keeps an undivided copy.
        check: raises ValueError if the engine cannot meet a demand of the run.
        check_here: raises ValueError if something that the engine needs is missing on this machine; called before
            anything is loaded or started.
        close: ends what `make` started, such as servers.
        card_share: the part of a GPU's memory, as a fraction, that the engine's servers take on the learner's GPUs, for
            forecasts of memory. The second argument is the number of the learner's processes.
        cards: number of GPUs that one server takes. Only engines with servers have this hook. If `Serving.launcher` is
            set, `make` starts the servers with it.
    """

    KIND: ClassVar[str] = "engine"

    make: Callable[[Any, Serving], Policy] = hook(help="(config, serving) -> Policy")
    weights: bool = hook("WEIGHTS", "it generates with the trainer's weights", False)
    folders: bool = hook("FOLDERS", "it loads folders of weights itself", False)
    check: Callable[[Any, Demands], None] | None = hook(
        help="(config, demands): ValueError before a run begins, if the engine cannot meet its demands", default=None
    )
    check_here: Callable[[Any], None] | None = hook(
        help="(config): ValueError before a model is loaded, if this machine lacks what the engine needs", default=None
    )
    close: Callable[[Any], None] | None = hook(help="(engine): end what `make` started", default=None)
    card_share: Callable[[Any, int], float] | None = hook(
        help="(config, processes): fraction of a GPU's memory that servers take on the learner's GPUs", default=None
    )
    cards: Callable[[Any], int] | None = hook(help="(config): GPUs of one server", default=None)
