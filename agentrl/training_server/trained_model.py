"""A model that clients train: adapters on the shared base model, and agentrl's learner with their optimiser."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from torch import Tensor

from agentrl.model import Loaded
from agentrl.trainer import Learner, OptimConfig
from agentrl.training_server.packed_passes import run_passes
from agentrl.training_server.shared_base import SharedBase
from agentrl.training_server.verbs import AdamSettings, AdapterPlan, PassResult, PassWork

State = Mapping[str, Tensor]  # name -> tensor, in the CPU's memory


class ModelState(NamedTuple):
    """The adapters of a model, and the state of its optimiser: `PARAMETER/KEY` -> tensor (None: not stored)."""

    plan: AdapterPlan
    adapters: State
    optimiser: State | None


class TrainedModel:
    """A model that is trained. Only one thread may use it, and it may use the base model at that time.

    Args:
        base: the shared base model.
        plan: the adapters.
        max_tokens: largest number of packed tokens per micro-batch.
        state: adapters and optimiser to begin with; None for fresh ones.

    Raises:
        ValueError: the plan fits no layer, or the state is that of another base model.
    """

    def __init__(self, base: SharedBase, plan: AdapterPlan, max_tokens: int, state: ModelState | None = None) -> None:
        self.plan, self._base, self._max_tokens = plan, base, max_tokens
        self.name = base.add(plan)
        base.use(self.name)
        settings = OptimConfig(lr=0.0, weight_decay=0.0, grad_clip=0.0)
        self.learner = Learner(Loaded(base.model, base.tokenizer), settings, known=base.network)
        if state is not None:
            try:
                self.load(state)
            except ValueError:
                base.remove(self.name)
                raise

    def close(self) -> None:
        """Free the memory of the adapters and the optimiser."""
        self._base.remove(self.name)

    def passes(self, work: PassWork) -> PassResult:
        """`forward` or `forward_backward`; gradients add up until the next `step`.

        If a backward pass fails, such as for lack of memory, the request has added nothing to the gradients.
        """
        self._base.use(self.name)
        before = [(x, None if x.grad is None else x.grad.clone()) for x in self.learner.trained if work.backward]
        try:
            return run_passes(self.learner.network, work, self._max_tokens, self.factors(work))
        except BaseException:
            for parameter, gradient in before:
                parameter.grad = gradient
            raise

    def factors(self, work: PassWork) -> np.ndarray:
        """[D] the factor of each datum's loss in the gradient: the protocol sums over tokens and datums."""
        return np.ones(len(work.data))

    def step(self, adam: AdamSettings) -> dict[str, float]:
        """One step of AdamW with the gradients so far; returns its metrics.

        As in every update of agentrl, a step whose gradients are all exactly zero moves nothing, and a step whose
        gradient norm is not finite is skipped (metric `skipped`).
        """
        self._base.use(self.name)
        learner = self.learner
        learner.optim = learner.optim.model_copy(update={"grad_clip": adam.grad_clip})
        for optimiser in learner.optimisers:
            for group in optimiser.param_groups:
                group.update(base_lr=adam.lr, betas=(adam.beta1, adam.beta2), eps=adam.eps)
                group["weight_decay"] = adam.weight_decay
        report = learner.step()
        norm = report.grad_norm
        assert norm is not None, "a learner of this process knows the norm"
        return {"grad_norm": norm, "skipped": float(report.skipped)}

    def state(self) -> ModelState:
        """A copy of adapters and optimiser."""
        return ModelState(self.plan, self._base.copy_of(self.name), self._optimiser_state())

    def _optimiser_state(self) -> dict[str, Tensor]:
        return {
            f"{name}/{key}": value.detach().to("cpu", copy=True)
            for name, parameter in self._base.named(self.name)
            for optimiser in self.learner.optimisers
            for key, value in optimiser.state.get(parameter, {}).items()
        }

    def load(self, state: ModelState) -> None:
        """Take the adapters and, if the state has it, the optimiser of a state; drop the gradients.

        Raises:
            ValueError: the state is that of another base model or another rank.
        """
        self._base.fill(self.name, state.adapters)
        self._base.use(self.name)
        self.learner.restart(self.learner.optim, 0)
        for _, parameter in self._base.named(self.name):
            parameter.grad = None
        if state.optimiser is None:
            return
        for name, parameter in self._base.named(self.name):
            kept = {key: value for key, value in state.optimiser.items() if key.startswith(f"{name}/")}
            for optimiser in self.learner.optimisers if kept else ():
                fused = any(group.get("fused") for group in optimiser.param_groups)
                optimiser.state[parameter] = {
                    key.rpartition("/")[2]: value.to(parameter.device if value.ndim or fused else "cpu", copy=True)
                    for key, value in kept.items()
                }
