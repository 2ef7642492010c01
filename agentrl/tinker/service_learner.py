"""The learner of a policy that a training service trains: its model there, its optimiser, reference and checkpoints."""

import json
import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from agentrl.engines.tinker import AdamStep, Service
from agentrl.model import SERVED_FILE, ServedWeights
from agentrl.pulse import PULSE
from agentrl.tinker.reference import Frozen, ReferenceModel, how_to_read, keep
from agentrl.tinker.service_passes import FrozenPasses, ServicePasses
from agentrl.tinker.sums import Sums
from agentrl.trainer import ALONE, LearnerConfig, Meter, OptimConfig, StepReport, rate_of

log = logging.getLogger(__name__)

EPS = 1e-8  # of AdamW, as torch's and the local learner's; the protocol's default is 1e-12


class ServedPolicy(NamedTuple):
    """Which model a service trains for a policy, and how.

    Attributes:
        name: the policy's name in the recipe.
        model: name of the base model at the service.
        seed: seed of new adapters.
        sums: how the service adds up token losses.
    """

    name: str
    model: str
    seed: int
    sums: Sums


class ServiceLearner:
    """The learner of one policy at a training service; see `agentrl.trainer.PolicyLearner`.

    The service trains adapters (LoRA). Their optimiser is AdamW there. Weight decay applies to the adapters, and pulls
    the policy towards the base model.

    Args:
        service: the connection.
        policy: the model that the service trains.
        tokenizer: tokenizer of the model.
        optim: section [optim].
        config: section [learner].
        reference: keep a reference model for KL: a snapshot of the current weights, which `restart` renews.
        initial: the reference is the base model, and `restart` does not renew it.
        stored: the content of SERVED_FILE in a checkpoint, from which weights and optimiser are loaded; None for new
            adapters.

    Raises:
        ServiceError: the service does not have the model or the checkpoint.
    """

    meter = Meter
    half = True  # the precision of a service is not known, and most compute in bfloat16

    def __init__(
        self,
        service: Service,
        policy: ServedPolicy,
        tokenizer: Any,
        optim: OptimConfig,
        config: LearnerConfig,
        *,
        reference: bool = False,
        initial: bool = False,
        stored: Mapping[str, Any] | None = None,
    ) -> None:
        self._service, self._policy = service, policy
        self.tokenizer, self.config, self.ranks = tokenizer, config, ALONE
        self.critic: Any = None
        self._wants_reference, self._initial = reference, initial
        self._kept: Frozen | None = None  # where the reference model is; None before it is needed
        self._reference: ReferenceModel | None = None
        self._sampler: ServedWeights | None = None
        self._fresh = True  # has the optimiser no state yet?
        self.trainer = self._begun(stored)
        self.passes = ServicePasses(self.trainer, policy.sums)
        self.restart(optim, 0)

    def _begun(self, stored: Mapping[str, Any] | None) -> Any:
        """The model at the service: a new one, or the one of a checkpoint."""
        config, model = self.config, self._policy.model
        if stored is not None:
            trainer = self._service.resume(stored["state"], optimiser=True, model=model, rank=config.rank)
        else:
            trainer = self._service.train(
                model,
                rank=config.rank,
                seed=self._policy.seed,
                train_attn=config.train_attn,
                train_mlp=config.train_mlp,
                train_unembed=config.train_unembed,
            )
        trainer.check()
        return trainer

    def notes(self, dtype: str) -> list[str]:
        """Notes for the user: what trains where."""
        sums = "sums over tokens" if self._policy.sums == "tokens" else "means over sequences, which are undone here"
        return [
            f"{self._service.url} trains adapters of rank {self.config.rank} for {self._policy.model} ({sums}); every "
            "path is sent as a sequence of its own, so tokens that paths share are sent again"
        ]

    @property
    def has_reference(self) -> bool:
        """Is there a reference model?"""
        return self._wants_reference

    @property
    def rate(self) -> float:
        """See `agentrl.trainer.PolicyLearner.rate`."""
        return rate_of(self.optim, self.updates, self.total_updates, self.spent)

    @property
    def generating(self) -> ServedWeights:
        """A snapshot of the current weights at the service."""
        if self._sampler is None:
            with PULSE.call("weights"):
                self._sampler = ServedWeights(self.trainer.sampler())
        return self._sampler

    def gather(self) -> None:
        """Nothing to do: the service holds the weights."""

    def restart(self, optim: OptimConfig, updates: int) -> None:
        """Begin a stage of `updates` updates with a new optimiser and learning-rate schedule.

        The reference becomes a snapshot of the current policy, unless the learner was made with `initial`.
        """
        self.optim, self.total_updates, self.updates, self.spent = optim, updates, 0, 0.0
        if not self._fresh:
            state = self.trainer.save(self._name("stage"), self._keep_s)
            self.close()  # first, because a service has room for few models
            self._replace(self._service.resume(state, optimiser=False))
        if not self._initial:
            self._forget_reference(None)

    def close(self) -> None:
        """Free the models at the service."""
        self.trainer.unload()
        self._forget_reference(self._kept)

    def _replace(self, trainer: Any) -> None:
        """Go on with another model at the service, which has the same weights and a new optimiser."""
        self.trainer, self.passes.trainer, self._fresh = trainer, trainer, True
        self._sampler = None

    @contextmanager
    def reference(self) -> Iterator[FrozenPasses]:
        """The passes through the reference model, for use in a `with` block."""
        assert self._wants_reference, "this learner was made without a reference model"
        if self._reference is None:
            self._reference = ReferenceModel(self._service, self._frozen(), self._policy.model)
        yield FrozenPasses(self._reference.logprobs, self._count_reference)

    def _frozen(self) -> Frozen:
        """Where the reference model is; the first call of a stage makes it from the current weights."""
        if self._kept is None:
            reads = how_to_read(self._service, self._policy.model, self.trainer, self._initial)
            self._kept = Frozen("", reads) if self._initial else keep(self.trainer, self._name("reference"), reads)
        return self._kept

    def _forget_reference(self, kept: Frozen | None) -> None:
        """Free the reference model; `kept` is where it is from now on."""
        if self._reference is not None:
            self._reference.close()
        self._kept, self._reference = kept, None

    def _count_reference(self, tokens: int) -> None:
        if self._kept is not None and self._kept.reads == "model":
            self.passes.forward_tokens += tokens  # a service bills the passes of a model as training
        else:
            self.passes.reference_tokens += tokens

    def step(self) -> StepReport:
        """Send the gradients and one step of AdamW, and wait for both.

        A service that keeps the order of requests gets both before either is awaited, because it may work in ticks of
        some seconds. Another one might carry out the step first. If a gradient is not finite, nothing is sent, and the
        step is logged as an error. If every gradient is exactly 0, nothing is sent either: momentum and weight decay
        move no weight.

        Raises:
            ServiceError, ServiceLost: the service refuses the step, or its answer was lost.
        """
        pushed = self.passes.pushed
        if not all(push.finite for push in pushed):
            self.passes.pushed = []
            log.error("a gradient of update %d is not finite: optimiser step skipped", self.updates)
            return StepReport(math.nan, True)
        if not any(push.data for push in pushed):
            self.passes.pushed = []
            return StepReport(0.0, False)
        optim, beta = self.optim, self.optim.betas
        adam = AdamStep(optim.lr * self.rate, *beta, EPS, optim.weight_decay, optim.grad_clip)
        with PULSE.call("update"):
            waits = [self.passes.send()]
            if not self._service.in_order:
                waits.pop()()
            stepped = self.trainer.step(adam)
            for wait in waits:
                wait()
            told = stepped.result()
        self.passes.moved()
        self._sampler, self._fresh = None, False
        norm = told.get("grad_norm")
        return StepReport(norm, bool(told.get("skipped")) or (norm is not None and not math.isfinite(norm)))

    def save(self, folder: Path, model: Any) -> None:
        """Let the service store weights and optimiser; write where into SERVED_FILE of a folder, with the tokenizer.

        Args:
            folder: the folder; it is made.
            model: `generating`; the service stores the same weights for samplers.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with PULSE.call("weights"):
            state = self.trainer.save(self._name("state"), self._keep_s)
            sampler = self.trainer.save_sampler(self._name("sampler"), self._keep_s)
        table = {
            "url": self._service.url,
            "model": self._policy.model,
            "rank": self.config.rank,
            "state": state,
            "sampler": sampler,
            "sums": self._policy.sums,
        }
        (folder / SERVED_FILE).write_text(json.dumps(table, indent=1) + "\n")
        self.tokenizer.save_pretrained(str(folder))

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint, without weights and optimiser, which the service stores (`save`)."""
        return {
            "optim": self.optim.model_dump(mode="json"),
            "updates": self.updates,
            "total_updates": self.total_updates,
            "reference": self._frozen()._asdict() if self._wants_reference else None,
            "fresh": self._fresh,
        }

    def load_state_dict(self, state: Mapping[str, Any], parts: Path | None = None) -> None:
        """Continue exactly from a `state_dict`; the learner must have been made from the same checkpoint.

        Args:
            state: the state.
            parts: not used; a service has no ranks.

        Raises:
            ValueError: the state belongs to a learner of this process, or lacks the reference that this learner has.
        """
        if "fresh" not in state:
            raise ValueError("the state is of learner.name=local: set learner.name=local")
        if self._wants_reference and state["reference"] is None:
            raise ValueError("the state has no reference model: the checkpoint is of a run with update.kl_coef=0")
        self.optim = OptimConfig.model_validate(state["optim"])
        self.updates, self.total_updates = int(state["updates"]), int(state["total_updates"])
        self.spent, self._fresh = 0.0, bool(state["fresh"])
        self._forget_reference(Frozen(**state["reference"]) if self._wants_reference else None)

    @property
    def _keep_s(self) -> float | None:
        """Seconds for which the service keeps a checkpoint; None for ever."""
        return self.config.keep_days * 86400 or None

    def _name(self, kind: str) -> str:
        """A name for something that the service stores, which no other run uses."""
        return f"{self._policy.name}-{kind}-{self.updates}-{uuid4().hex[:12]}"
