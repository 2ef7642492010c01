"""A learner, which updates change: weights, tokenizer, optimiser, learning-rate schedule, reference model, critic."""

import copy
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from agentrl.model import Network, Sharing, network
from agentrl.trainer.critic import Critic
from agentrl.trainer.float32_masters import Masters
from agentrl.trainer.muon import Muon
from agentrl.trainer.sections import OptimConfig

log = logging.getLogger(__name__)


class ModelAndTokenizer(Protocol):
    """A model and its tokenizer; `agentrl.model.Loaded` is one."""

    @property
    def model(self) -> Any: ...

    @property
    def tokenizer(self) -> Any: ...


class StepReport(NamedTuple):
    """An optimiser step: the gradient norm before clipping, and whether the step was skipped (norm not finite)."""

    grad_norm: float
    skipped: bool


class Learner:
    """Weights, and everything that an update needs to change them.

    Weights in half precision are changed through float32 copies (`agentrl.trainer.float32_masters`).

    Args:
        loaded: model (transformers, or peft around it) and tokenizer.
        optim: section [optim].
        reference: keep a reference model for KL: for peft the model with the adapter disabled, else a frozen copy of
            the current weights, which `restart` renews.
        sharing: how batches are packed; None finds out what the model's layers allow.
        critic: makes the critic for a policy's network, at first and at each `restart`; None for no critic.
    """

    def __init__(
        self,
        loaded: ModelAndTokenizer,
        optim: OptimConfig,
        *,
        reference: bool = False,
        sharing: Sharing | None = None,
        critic: Callable[[Network], Critic] | None = None,
    ) -> None:
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.network = network(self.model, sharing)
        self._adapter = hasattr(self.model, "disable_adapter")
        self._wants_reference = reference
        self._make_critic = critic
        self.critic: Critic | None = None
        self._masters: Masters | None = None
        self._reference: Network | None = None
        self.restart(optim, 0)

    @property
    def note(self) -> str:
        """A note for reports: how batches are packed, and why one path per row if they are not packed as trees."""
        if self.network.reason:
            return f"every path is packed as a row of its own: {self.network.reason}"
        return "batches are packed as trees: what several steps share is computed once"

    @property
    def has_reference(self) -> bool:
        """Is there a reference model?"""
        return self._wants_reference

    def restart(self, optim: OptimConfig, updates: int) -> None:
        """Begin a stage of `updates` updates with a new optimiser, learning-rate schedule and critic.

        The reference becomes a copy of the current policy; with an adapter it stays the model below the adapter.
        """
        self.optim, self.total_updates, self.updates, self.spent = optim, updates, 0, 0.0
        if self._masters is not None:
            self._masters.close()
        self._masters = Masters(self.network.model)
        self.optimisers = _optimisers(self.network.model, optim, self._masters)
        self.critic = self._make_critic(self.network) if self._make_critic else None
        if self._wants_reference and not self._adapter:
            model = copy.deepcopy(self.network.model).requires_grad_(False).eval()
            self._reference = Network(model=model, sharing=self.network.sharing, reason=self.network.reason)

    @contextmanager
    def reference(self) -> Iterator[Network]:
        """The reference network."""
        assert self._wants_reference, "this learner was made without a reference model"
        if self._reference is not None:
            yield self._reference
        else:
            with self.model.disable_adapter():
                yield self.network

    @property
    def trained(self) -> list[nn.Parameter]:
        """The tensors that the optimiser changes: parameters, or the float32 copies of half-precision parameters."""
        return [p for optimiser in self.optimisers for group in optimiser.param_groups for p in group["params"]]

    @property
    def rate(self) -> float:
        """Factor on the configured learning rates in this update, from 0 to 1."""
        if self.updates < self.optim.warmup:
            return (self.updates + 1) / (self.optim.warmup + 1)
        if self.optim.schedule == "constant":
            return 1.0
        span = max(1, self.total_updates - self.optim.warmup)
        progress = max(self.spent, (self.updates - self.optim.warmup) / span)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))

    def step(self) -> StepReport:
        """One optimiser step with the accumulated gradients, which are then dropped.

        If the gradient norm is not finite, the step is skipped and logged as an error.
        """
        assert self._masters is not None
        norm = torch.nn.utils.clip_grad_norm_(self.trained, self.optim.grad_clip or math.inf)
        value = float(norm)
        if math.isfinite(value):
            for optimiser in self.optimisers:
                for group in optimiser.param_groups:
                    group["lr"] = group["base_lr"] * self.rate
                optimiser.step()
            self._masters.write_back()
        else:
            log.error("gradient norm is %s in update %d: optimiser step skipped", value, self.updates)
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
        return StepReport(value, not math.isfinite(value))

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint, without the weights, which are saved in the layout of transformers."""
        return {
            "optim": self.optim.model_dump(mode="json"),
            "updates": self.updates,
            "total_updates": self.total_updates,
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "masters": self._masters.state() if self._masters else [],
            "reference": None if self._reference is None else self._reference.model.state_dict(),
            "critic": None if self.critic is None else self.critic.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from a `state_dict`; the weights must be those that were saved with it.

        Raises:
            ValueError: the state belongs to another model, or has no critic or reference model where this learner does.
        """
        self.restart(OptimConfig.model_validate(state["optim"]), state["total_updates"])
        self.updates = int(state["updates"])
        try:
            for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
                optimiser.load_state_dict(saved)
                _check_shapes(optimiser)
            if self._masters is not None:
                self._masters.load(state.get("masters", []))
            if self._reference is not None and state["reference"] is not None:
                self._reference.model.load_state_dict(state["reference"])
        except (ValueError, RuntimeError, KeyError) as error:
            raise ValueError(f"the optimiser's state is of another model or section [optim]: {error}") from None
        if self.critic is not None:
            if state.get("critic") is None:
                raise ValueError(
                    "the checkpoint has no critic: resume with the critic.model that the run was started with"
                )
            self.critic.load_state_dict(state["critic"])
        if self._reference is not None and state["reference"] is None:
            raise ValueError(
                "the checkpoint has no reference model: resume with the update.kl_coef that the run was started with"
            )


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
    groups = [(decayed, config.weight_decay), (plain, 0.0)]
    optimisers: list[torch.optim.Optimizer] = []
    adamw = [{"params": p, "lr": config.lr, "base_lr": config.lr, "weight_decay": decay} for p, decay in groups if p]
    if adamw:
        optimisers.append(torch.optim.AdamW(adamw, betas=config.betas))
    if muon:
        group = {"params": muon, "lr": config.muon_lr, "base_lr": config.muon_lr}
        optimisers.append(Muon([group], lr=config.muon_lr, weight_decay=config.weight_decay))
    if not optimisers:
        raise ValueError("the model has no parameter that can be trained: check model.path and lora.target_modules")
    return optimisers


def _check_shapes(optimiser: torch.optim.Optimizer) -> None:
    """Raises ValueError if the state of a parameter has another shape, which torch would find in the next update."""
    for parameter, state in optimiser.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.ndim and value.shape != parameter.shape:
                raise ValueError(f"{name} has shape {[*value.shape]} for a parameter of shape {[*parameter.shape]}")


def _embedding_ids(model: Any) -> set[int]:
    """Identities of the parameters of embeddings and of the output head."""
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding)]
    return {id(p) for module in [*tables, model.get_output_embeddings()] for p in module.parameters()}
