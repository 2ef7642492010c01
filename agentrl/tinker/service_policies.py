"""The policies of a run whose weights a training service holds."""

from collections.abc import Mapping
from pathlib import Path

from agentrl.engines.tinker import Service, ServiceError
from agentrl.model import read_served, served_tokenizer
from agentrl.run import Policies, Vocabulary
from agentrl.settings import Settings
from agentrl.tinker.ignored_options import check_flags, clips_gradients
from agentrl.tinker.service_learner import ServedPolicy, ServiceLearner
from agentrl.tinker.sums import Sums, keeps_snapshots, probe_sums
from agentrl.trainer import OptimConfig


class ServicePolicies(Policies):
    """The policies of a run whose weights a training service holds; each policy is a model of its own there.

    Args:
        settings, vocabularies, at: see `agentrl.run.Policies`. There are no vocabularies, because a service makes no
            model from scratch.

    Raises:
        ServiceError: the service cannot be reached, or does not have the model.
    """

    def __init__(self, settings: Settings, vocabularies: Mapping[str, Vocabulary], at: Path | None) -> None:
        config = settings.tables.learner
        self.service = Service(config.url, timeout_s=config.timeout_s)
        self._sums: dict[str, Sums] = {}  # base model -> how the service adds up its token losses
        self._unclipped: list[str] = []  # base models whose gradients the service does not clip
        try:
            super().__init__(settings, vocabularies, at, make_learner=self._learner)
        except BaseException:
            self.service.close()
            raise

    def _learner(self, settings: Settings, policy: str, at: Path | None) -> ServiceLearner:
        """The learner of a policy: new, or from a checkpoint."""
        tables, plan = settings.tables, settings.policies[policy]
        config = tables.learner
        stored = None if at is None else read_served(at / policy)
        model = config.model or str(plan.model.path)
        if stored is not None and stored["model"] != model:
            raise ServiceError(
                f"{at} holds adapters of {stored['model']}, and learner.model is {model}: set "
                f"learner.model={stored['model']}"
            )
        self._check_context(model)
        if stored is not None and stored["url"] == self.service.url:
            self._sums[model] = stored["sums"]  # tried before the run was resumed
        if model not in self._sums:
            self._sums[model] = self._tried(model, plan.optim)
        served = ServedPolicy(policy, model, tables.run.seed if config.seed is None else config.seed, self._sums[model])
        return ServiceLearner(
            self.service,
            served,
            served_tokenizer(plan.model),
            plan.optim,
            config,
            reference=tables.update.kl_coef > 0,
            initial=tables.update.kl_reference == "initial",
            stored=stored,
        )

    def _tried(self, model: str, optim: OptimConfig) -> Sums:
        """How the service adds up the token losses of a base model, after small requests that try what a run needs.

        Raises:
            ServiceError: the service ignores options of the recipe without which the run would learn something else.
        """
        config = self.settings.tables.learner
        self._check_staleness(model)
        sums = config.sums if config.sums != "auto" else probe_sums(self.service, model)
        check_flags(self.service, model, config)
        if optim.grad_clip and not clips_gradients(self.service, model):
            self._unclipped.append(model)
        return sums

    def _check_context(self, model: str) -> None:
        """Raise ServiceError if the service reads only shorter contexts of the model than engine.max_context."""
        longest, wanted = self.service.models().get(model), self.settings.engine.config.max_context
        if longest is not None and wanted > longest:
            raise ServiceError(
                f"engine.max_context is {wanted}, and {self.service.url} reads at most {longest} tokens of {model}: "
                f"set engine.max_context={longest}"
            )

    def _check_staleness(self, model: str) -> None:
        """Raise ServiceError if older weights are sampled beside the training, and the service does not keep them."""
        staleness = self.settings.tables.run.staleness
        if staleness and not keeps_snapshots(self.service, model):
            raise ServiceError(
                f"run.staleness is {staleness}, and {self.service.url} does not keep the weights of a sampler apart "
                "from those that it trains: set run.staleness=0, or choose another service"
            )

    def notes(self) -> list[str]:
        """Notes for the user; see `agentrl.run.Policies.notes`."""
        unclipped = [
            f"{self.service.url} ignores optim.grad_clip for {model}: its optimiser steps do not clip gradients"
            for model in self._unclipped
        ]
        return [*super().notes(), *unclipped]

    def close(self) -> None:
        """Free the models, and end the session at the service."""
        super().close()
        self.service.close()
