"""A learner: weights, tokenizer, optimiser, learning-rate schedule and reference model. What an update
changes."""

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
from agentrl.trainer.sections import OptimConfig

log = logging.getLogger(__name__)


class ModelAndTokenizer(Protocol):
    """What a learner is made of (`agentrl.model.loading.Loaded` is one)."""

    @property
    def model(self) -> Any: ...

    @property
    def tokenizer(self) -> Any: ...


class StepReport(NamedTuple):
    """An optimiser step: the gradient's norm before clipping, and whether the step was skipped as not
    finite."""

    grad_norm: float
    skipped: bool


class Learner:
    """Weights and everything that goes with changing them. Weights in half precision are changed through float32
    copies (`agentrl.trainer.float32_masters`).

    Args:
        loaded: model (transformers, or peft around it) and tokenizer.
        optim: the optimiser.
        reference: keep a reference model for KL: the adapter disabled for peft, else a frozen copy of the
            weights as they are now (and again at `restart`).
        sharing: how batches are packed; None finds out what the model's layers allow.
        critic: makes the critic for a policy's network; None for no critic. Made anew at `restart`.
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
        """What a report must say about packing; empty if nothing."""
        return f"every path is packed as a row of its own: {self.network.reason}" if self.network.reason else ""

    @property
    def has_reference(self) -> bool:
        """Is there a reference model?"""
        return self._wants_reference

    def restart(self, optim: OptimConfig, updates: int) -> None:
        """Begin a stage: a fresh optimiser, history, critic and schedule over `updates` updates; the reference is
        the policy of now.

        With an adapter the reference stays the model below it.
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
        """What the optimiser changes: parameters, or their float32 copies where the model is in half precision."""
        return [p for optimiser in self.optimisers for group in optimiser.param_groups for p in group["params"]]

    @property
    def rate(self) -> float:
        """Share of the configured learning rates in this update."""
        if self.updates < self.optim.warmup:
            return (self.updates + 1) / (self.optim.warmup + 1)
        if self.optim.schedule == "constant":
            return 1.0
        span = max(1, self.total_updates - self.optim.warmup)
        done = max(self.spent, (self.updates - self.optim.warmup) / span)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    def step(self) -> StepReport:
        """One optimiser step with the accumulated gradients, which are then dropped.

        A gradient that is not finite changes nothing: the step is skipped and told.
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
        """Everything but the weights, which are saved in the layout of transformers."""
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
        """Go on exactly where `state_dict` was taken; the weights must be those saved with it.

        Raises:
            ValueError: the state is of another model.
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
            raise ValueError(f"the optimiser's state is of another model: {error}") from None
        if self.critic is not None:
            if state.get("critic") is None:
                raise ValueError("the checkpoint has no critic: resume with the critic.model it was started with")
            self.critic.load_state_dict(state["critic"])
        if self._reference is not None and state["reference"] is None:
            raise ValueError("the checkpoint has no reference model: resume with the kl_coef it was started with")


def _optimisers(model: nn.Module, config: OptimConfig, masters: Masters) -> list[torch.optim.Optimizer]:
    """AdamW over everything, or Muon over hidden matrices and AdamW over the rest."""
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
        if not hasattr(torch.optim, "Muon"):
            raise ValueError(f"optim.name=muon needs torch 2.9 or newer, this is {torch.__version__}: use adamw")
        group = {"params": muon, "lr": config.muon_lr, "base_lr": config.muon_lr}
        optimisers.append(torch.optim.Muon([group], lr=config.muon_lr, weight_decay=config.weight_decay))
    if not optimisers:
        raise ValueError("the model has no parameter that can be trained")
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
