"""The learner of a policy: its weights, optimiser, learning rate, critic, tokenizer and reference model."""

import copy
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from agentrl.model import DividedModel, Loaded, Network, Sharing, network, precision_note, save_model
from agentrl.trainer import adamw, fsdp, learner_state
from agentrl.trainer.critic import Critic
from agentrl.trainer.float32_masters import HALF, Masters
from agentrl.trainer.local_passes import LocalPasses
from agentrl.trainer.meter import Meter
from agentrl.trainer.muon import Muon
from agentrl.trainer.passes import StepReport
from agentrl.trainer.ranks import ALONE, Ranks
from agentrl.trainer.schedule import rate_of
from agentrl.trainer.sections import LearnerConfig, OptimConfig

log = logging.getLogger(__name__)


class ModelAndTokenizer(Protocol):
    """A model and its tokenizer, such as `agentrl.model.Loaded`."""

    @property
    def model(self) -> Any: ...

    @property
    def tokenizer(self) -> Any: ...


class Learner:
    """The weights of a policy, with everything that an update needs to change them.

    Weights in half precision are changed through float32 copies (`agentrl.trainer.float32_masters`).

    Args:
        loaded: model (transformers, or peft around it) and tokenizer.
        optim: section [optim].
        reference: keep a reference model for KL: a frozen copy of the current weights (with peft, of the adapter
            alone), which `restart` renews.
        initial: the reference is the model as it is now, and `restart` does not renew it; with peft it is the model
            without the adapter.
        sharing: how batches are packed; None packs them as trees if the model's layers allow it.
        critic: makes the critic for a policy's network, now and at each `restart`; None for no critic.
        config: section [learner].
        ranks: the processes that share this learner. Every process makes the learner from the same weights and calls
            the same methods; `config.divided` says whether the model is divided.
        known: the network of the model, if it was found before; None: the learner finds it (`agentrl.model.network`).
        copied: keep an undivided copy of a divided model on rank 0, for an engine that generates in this process.

    Attributes:
        half: does the model compute in half precision?
        generating: the model for engines and checkpoints. If the trained model is not divided, it is this model itself.
            If it is divided, `generating` is None on the ranks above 0. On rank 0 it is a copy that `gather` updates
            (with `copied`), or a `DividedModel`, which gathers one weight at a time.
        meter: the class that sums the metrics of an update.
    """

    meter: type[Meter] = Meter

    def __init__(
        self,
        loaded: ModelAndTokenizer,
        optim: OptimConfig,
        *,
        reference: bool = False,
        initial: bool = False,
        sharing: Sharing | None = None,
        critic: Callable[[Network], Critic] | None = None,
        config: LearnerConfig | None = None,
        ranks: Ranks | None = None,
        known: Network | None = None,
        copied: bool = True,
    ) -> None:
        self.model, self.tokenizer, self.ranks = loaded.model, loaded.tokenizer, ranks or ALONE
        self.config = config or LearnerConfig()
        self.network = known or network(self.model, sharing, dropout=self.config.keep_dropout)
        self.network.model.eval()
        self.half = self.network.model.dtype in HALF
        self.generating: Any = self.model
        self._stale, self._copied = False, copied
        if self.config.divided:
            _check_same(self.model, self.ranks)
            self.generating = self._undivided() if self.ranks.leads else None
            fsdp.shard(self.network.model, self.ranks, offload=self.config.offload)
        if self.config.checkpointing:
            _recompute(self.network.model)
        self._adapter = hasattr(self.model, "disable_adapter")
        self._wants_reference, self._initial = reference, initial
        self._make_critic = critic
        self.critic: Critic | None = None
        self.masters: Masters | None = None
        self.reference_copy: Network | None = None
        self.reference_adapter: dict[str, Tensor] | None = None
        self.restart(optim, 0)

    def notes(self, dtype: str) -> list[str]:
        """Notes for reports: how batches are packed, and the precision; `dtype` is the option of the recipe."""
        return [self.note, precision_note(dtype, self.network.device)]

    @property
    def note(self) -> str:
        """A note for reports: how batches are packed, and, if they are not packed as trees, the reason."""
        if self.network.reason:
            return f"every path is packed as a sequence of its own: {self.network.reason}"
        return "batches are packed as trees: tokens that several steps share are computed once"

    @property
    def has_reference(self) -> bool:
        """Is there a reference model?"""
        return self._wants_reference

    def restart(self, optim: OptimConfig, updates: int) -> None:
        """Begin a stage of `updates` updates with a new optimiser, learning-rate schedule and critic.

        The reference becomes a copy of the current policy, unless the learner was made with `initial`.
        """
        self.optim, self.total_updates, self.updates, self.spent = optim, updates, 0, 0.0
        if self.masters is not None:
            self.masters.close()
        self.masters = Masters(self.network.model)
        self.optimisers = _optimisers(self.network.model, optim, self.masters)
        self.critic = self._make_critic(self.network) if self._make_critic else None
        if self._wants_reference and self._adapter and not self._initial:
            named = self.network.model.named_parameters()
            self.reference_adapter = {name: p.detach().clone() for name, p in named if p.requires_grad}
        elif self._wants_reference and not self._adapter and not (self._initial and self.reference_copy):
            self.reference_copy = self._renewed_reference()

    def _renewed_reference(self) -> Network:
        """A frozen copy of the current policy."""
        if self.config.divided and self.reference_copy is not None:
            fsdp.copy_weights(self.network.model, self.reference_copy.model)
            return self.reference_copy
        if self.config.divided:
            model = fsdp.duplicate(self.network.model)
        else:
            model = copy.deepcopy(self.network.model).requires_grad_(False)
        return replace(self.network, model=model.eval())

    def _undivided(self) -> Any:
        """The model before it is divided: a copy or, without one, its shell and the ways to read it."""
        if self._copied:
            return copy.deepcopy(self.model).requires_grad_(False).eval()
        device = torch.device("cpu") if self.config.offload else self.network.device
        return DividedModel(fsdp.blank(self.model).eval(), device, self.gathered, self.logits)

    def gathered(self, names: Sequence[str]) -> Iterator[Tensor]:
        """Yields whole weights of a divided model, by name; every rank calls this and reads all of them."""
        return fsdp.wholes(self.network.model, names)

    def logits(self, ids: Sequence[int]) -> Tensor:
        """[T, V] logits after each of the T tokens `ids`; every rank calls this."""
        with self.network.undisturbed():
            return self.network.logits(self.network.decoder(torch.tensor([ids], device=self.network.device))[0])

    def gather(self) -> None:
        """Copy the trained weights of a divided learner into the copy on rank 0; every rank calls this."""
        if not self.config.divided or not self._copied or not self._stale:
            return
        inner = {} if self.generating is None else dict(_inner(self.generating).named_parameters())
        with torch.no_grad():
            for name, parameter in self.network.model.named_parameters():
                if parameter.requires_grad:
                    full = fsdp.whole(parameter)
                    if inner:
                        inner[name].copy_(full)
        self._stale = False

    @property
    def passes(self) -> LocalPasses:
        """The passes through the policy's network."""
        return LocalPasses(self.network, self.config.keep_dropout)

    @contextmanager
    def reference(self) -> Iterator[LocalPasses]:
        """The passes through the reference network, for use in a `with` block."""
        assert self._wants_reference, "this learner was made without a reference model"
        if self.reference_copy is not None:
            yield LocalPasses(self.reference_copy)
        elif self.reference_adapter is not None:
            with _exchanged(self.network.model, self.reference_adapter):
                yield LocalPasses(self.network)
        else:
            with self.model.disable_adapter():
                yield LocalPasses(self.network)

    @property
    def trained(self) -> list[nn.Parameter]:
        """The tensors that the optimiser changes: parameters, or the float32 copies of half-precision parameters."""
        return [p for optimiser in self.optimisers for group in optimiser.param_groups for p in group["params"]]

    @property
    def rate(self) -> float:
        """The factor by which the configured learning rates are multiplied in this update, from 0 to 1."""
        return rate_of(self.optim, self.updates, self.total_updates, self.spent)

    def step(self) -> StepReport:
        """Make one optimiser step with the accumulated gradients, then clear the gradients.

        If the gradient norm is not finite, the step is skipped and logged as an error. If every gradient is exactly 0,
        the step does nothing: momentum and weight decay move no weight either.
        """
        assert self.masters is not None
        value = fsdp.clip(self.trained, self.optim.grad_clip)
        self._stale = True
        if value == 0:
            pass
        elif math.isfinite(value):
            for optimiser in self.optimisers:
                for group in optimiser.param_groups:
                    group["lr"] = group["base_lr"] * self.rate
                optimiser.step()
            self.masters.write_back()
        else:
            log.error("gradient norm is %s in update %d: optimiser step skipped", value, self.updates)
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
        return StepReport(value, not math.isfinite(value))

    def save(self, folder: Path, model: Any) -> None:
        """Write the weights of `model`, which is `generating` or a way to read it, and the tokenizer into a folder."""
        save_model(Loaded(model, self.tokenizer), folder)

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint, without the weights, which are saved in the layout of transformers.

        The state of a divided learner has no tensors; `write_parts` stores its tensors.
        """
        return {
            "optim": self.optim.model_dump(mode="json"),
            "updates": self.updates,
            "total_updates": self.total_updates,
            **({"divided": self.ranks.size} if self.config.divided else learner_state.tensors(self)),
        }

    def write_parts(self, folder: Path) -> None:
        """Store the tensors of a divided learner's state; every rank calls this.

        Raises:
            OSError: a rank could not write its part.
        """
        learner_state.write(self, folder)

    def load_state_dict(self, state: Mapping[str, Any], parts: Path | None = None) -> None:
        """Continue exactly from a `state_dict`; the weights must be those that were saved with it.

        Args:
            state: the state of a learner with any number of ranks.
            parts: the folder that `write_parts` wrote, if the learner of the state was divided; else None.

        Raises:
            ValueError: the state belongs to another model, or lacks the critic or the reference model that this learner
                has.
        """
        self.restart(OptimConfig.model_validate(state["optim"]), state["total_updates"])
        self.updates = int(state["updates"])
        if self.config.divided or "divided" in state:
            learner_state.load(self, state, parts)
        else:
            learner_state.load_tensors(self, state)
        self._stale = True


def _optimisers(model: nn.Module, config: OptimConfig, masters: Masters) -> list[torch.optim.Optimizer]:
    """AdamW for all parameters, or Muon for the matrices between embedding and head and AdamW for the rest."""
    muon: list[Tensor] = []
    decayed: list[Tensor] = []
    plain: list[Tensor] = []
    embedded = _embedding_ids(model)
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        if config.name == "muon" and parameter.ndim == 2 and id(parameter) not in embedded:
            muon.append(masters.of(parameter))
        else:
            (decayed if parameter.ndim >= 2 else plain).append(masters.of(parameter))
    decays = [(decayed, config.weight_decay), (plain, 0.0)]
    optimisers: list[torch.optim.Optimizer] = []
    groups = [{"params": p, "lr": config.lr, "base_lr": config.lr, "weight_decay": decay} for p, decay in decays if p]
    if groups:
        optimisers.append(adamw.make(groups, betas=config.betas))
    if muon:
        group = {"params": muon, "lr": config.muon_lr, "base_lr": config.muon_lr}
        optimisers.append(Muon([group], lr=config.muon_lr, weight_decay=config.weight_decay))
    if not optimisers:
        raise ValueError(
            "the model has no parameter that can be trained: check model.path and model.lora.target_modules"
        )
    return optimisers


def _check_same(model: nn.Module, ranks: Ranks) -> None:
    """Raise ValueError if a rank has loaded other weights than rank 0 (the sums of each tensor are compared)."""
    rank = ranks.other(
        lambda: {name: float(p.detach().sum(dtype=torch.float64)) for name, p in model.named_parameters()}
    )
    if rank is not None:
        raise ValueError(
            f"process {rank} of the learner has loaded other weights than process 0: put the same model at model.path "
            "on every machine"
        )


def _recompute(model: Any) -> None:
    """Let the layers compute their activations again in the backward pass, and not store them."""
    try:  # transformers 5 renamed the method
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"learner.checkpointing: a model of type {model.config.model_type} cannot compute its activations again "
            f"({error}): set learner.checkpointing=false"
        ) from None


@contextmanager
def _exchanged(model: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Inside this `with` block the model has other weights, by name; afterwards it has its own again, bit for bit."""
    named = {name: p for name, p in model.named_parameters() if name in weights}
    before = {name: p.detach().clone() for name, p in named.items()}

    def set_to(values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in named.items():
                parameter.copy_(values[name])

    set_to(weights)
    try:
        yield
    finally:
        set_to(before)


def _inner(model: Any) -> Any:
    """The transformers model below the adapters."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _embedding_ids(model: Any) -> set[int]:
    """The `id` of each parameter of the embeddings and of the output head."""
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding)]
    return {id(p) for module in [*tables, model.get_output_embeddings()] for p in module.parameters()}
