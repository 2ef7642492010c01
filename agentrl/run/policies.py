"""The policies of a run: a learner for each policy, fillers (`agentrl.graph.filler`) and regularizers.

`Policies` is the half of a run that learns. The other half, `agentrl.run.Rollouts`, plays. `Policies` needs the
settings, the vocabularies of new models and, for a resumed run, a checkpoint.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from agentrl.credit import Credit
from agentrl.graph import StepGraph
from agentrl.model import (
    DividedModel,
    Loaded,
    Weights,
    check_shape,
    load_model,
    restore_model,
)
from agentrl.rollout import rows_of
from agentrl.run import checkpoint
from agentrl.run.vocabulary import Vocabulary
from agentrl.settings import Settings, fillers
from agentrl.trainer import (
    Annotated,
    Learner,
    Ranks,
    Regularizers,
    RunLearner,
    annotate,
    clone,
    critic_maker,
    observes_rows,
    trunk_gradient,
    update,
)
from agentrl.types import Stateful

MakeLearner = Callable[..., RunLearner]


class Policies:
    """The learners, fillers and regularizers of all policies of a run.

    Args:
        settings: the run's settings.
        vocabularies: vocabulary of each policy whose model is made from scratch.
        at: the checkpoint from which the models are loaded; None for a new run. `restore` and `load_state_dict` load
            the rest of the checkpoint.
        ranks: the processes that share the learners. Every process makes `Policies` and calls the same methods.
        make_learner: makes the learner of a policy; by default a `Learner`, whose weights are in this process. Its
            arguments are the settings, the policy's name, and the checkpoint `at`.

    Raises:
        ValueError: a model cannot be loaded, or the checkpoint holds another model.
    """

    def __init__(
        self,
        settings: Settings,
        vocabularies: Mapping[str, Vocabulary],
        at: Path | None = None,
        ranks: Ranks | None = None,
        make_learner: MakeLearner | None = None,
    ) -> None:
        self.settings, self.agents = settings, settings.agents
        self.main = next(iter(self.agents.values())).policy
        make = make_learner or partial(_local_learner, vocabularies=vocabularies, ranks=ranks)
        self.learners: dict[str, RunLearner] = {name: make(settings, name, at=at) for name in settings.policies}
        self.regularizers = {name: Regularizers(settings.regularizers) for name in self.learners}
        self.fillers = fillers(settings.credit, settings.context, settings.env)

    def weights(self) -> Weights:
        """The current weights of every policy. They are not copied, so read them only between two updates."""
        for learner in self.learners.values():
            learner.gather()
        return Weights({name: _readable(learner.generating, name, self) for name, learner in self.learners.items()})

    def gathered(self, policy: str, names: Sequence[str]) -> Iterator[Any]:
        """Yields whole weights of a divided policy, by name; see `Learner.gathered`."""
        yield from _divided(self.learners[policy]).gathered(names)

    def logits(self, policy: str, ids: Sequence[int]) -> Any:
        """[T, V] logits of a divided policy after each of the T tokens `ids`; see `Learner.logits`."""
        return _divided(self.learners[policy]).logits(ids)

    @property
    def tokenizers(self) -> dict[str, Any]:
        """The tokenizer of every policy."""
        return {name: learner.tokenizer for name, learner in self.learners.items()}

    def restart(self, stage: str) -> None:
        """Begin the stage `warmup` or `train` with new optimisers, schedules, critics and regularizers.

        The reference model of the KL term, if there is one, becomes a copy of the current weights, or stays the model
        before the warm-up (`update.kl_reference`).
        """
        tables = self.settings.tables
        steps = tables.warmup.updates if stage == "warmup" else tables.run.iterations
        for name, learner in self.learners.items():
            plan = self.settings.policies[name]
            learner.restart(plan.clone_optim if stage == "warmup" else plan.optim, steps)
            self.regularizers[name].restart()

    def imitate(self, graph: StepGraph, step: int) -> dict[str, float]:
        """Let every policy imitate one batch of demonstrations. `step` seeds the order of the mini-batches.

        The policies of frozen agents are cloned too; cloning is their only training.
        """
        metrics: dict[str, float] = {}
        tables = self.settings.tables
        for name, learner in self.learners.items():
            rows = self._rows(graph, name, trained=False)
            own = graph if rows is None else graph.with_columns(weight=graph.weight * rows)
            if (own.weight > 0).any():
                cloned = clone(learner, own, tables.update, minibatches=tables.warmup.minibatches, seed=step)
                metrics |= self._named(name, cloned)
        return metrics

    def annotate(self, graph: StepGraph) -> Annotated:
        """Add the columns that each policy, and each filler with this policy, computes for the policy's own steps."""
        config, temperature = self.settings.tables.update, self.settings.tables.sampling.temperature
        entropies = any("token_entropy" in entry.hooks.needs for entry in self.settings.reward)
        old_entropy = observes_rows(config, self.settings.loss, bool(self.settings.regularizers))
        metrics: dict[str, float] = {}
        fillers = [*self.fillers.values()]
        for name, learner in self.learners.items():
            rows = self._rows(graph, name, trained=False)
            graph, found = annotate(graph, learner, config, temperature, fillers, rows, entropies, old_entropy)
            metrics |= self._named(name, found)
        return Annotated(graph, metrics)

    def improve(self, graph: StepGraph, credit: Credit, iteration: int, spent: float = 0.0) -> dict[str, float]:
        """Update every policy, each on the steps of its trained agents.

        Args:
            graph: the annotated graph of the batch.
            credit: credit of the graph's steps.
            iteration: number of the iteration; it seeds the order of mini-batches.
            spent: share of the run's budget that is used up, for the schedule of the learning rate.
        """
        metrics: dict[str, float] = {}
        for name, learner in self.learners.items():
            learner.spent = spent
            rows = self._rows(graph, name, trained=True)
            if rows is None or rows.any():
                own = credit if rows is None else replace(credit, assigned=credit.assigned & rows)
                metrics |= self._named(name, self._improve_one(name, graph, own, iteration))
        return metrics

    def save(self, part: Path) -> None:
        """Write every policy into the folder of a checkpoint."""
        for name, model in self.weights().models.items():
            self.learners[name].save(part / name, model)
        self.save_states(part)

    def save_states(self, part: Path) -> None:
        """Write what a checkpoint has of every learner beside the weights of its model."""
        for name, learner in self.learners.items():
            checkpoint.write_learner(part, name, learner)

    def restore(self, at: Path) -> checkpoint.StoredState:
        """Load the learners' state from a checkpoint, and return the rest of the checkpoint."""
        return checkpoint.read(at, self.learners)

    def end_with(self, updates: int) -> None:
        """Let the schedules of the learning rates end after `updates` updates."""
        for learner in self.learners.values():
            learner.total_updates = updates

    def close(self) -> None:
        """Nothing to do in one process; `LeadingPolicies` tells the other ranks to end."""

    def notes(self) -> list[str]:
        """Notes on the policies' models, for the user; a note may be empty."""
        policies = self.settings.policies
        return [
            note for name, learner in self.learners.items() for note in learner.notes(str(policies[name].model.dtype))
        ]

    def state_dict(self) -> dict[str, Any]:
        """The state of fillers and regularizers. The state of the learners is not included; `save` writes it."""
        return {
            "fillers": {name: filler.state_dict() for name, filler in _stateful(self.fillers)},
            "regularizers": {name: own.state_dict() for name, own in self.regularizers.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of fillers and regularizers that `state_dict` returned.

        Raises:
            ValueError: the state of a filler is missing.
        """
        for name, filler in _stateful(self.fillers):
            if name not in state["fillers"]:
                raise ValueError(f"the checkpoint has no state of {name}: it is a checkpoint of another run")
            filler.load_state_dict(state["fillers"][name])
        for name, own in self.regularizers.items():
            own.load_state_dict(state["regularizers"].get(name, {}))

    def _rows(self, graph: StepGraph, policy: str, *, trained: bool) -> np.ndarray | None:
        """[N] bool: is the step a step of this policy and, if `trained`, of a trained agent? None if every step is."""
        if len(self.learners) == 1 and (not trained or all(agent.trained for agent in self.agents.values())):
            return None
        return rows_of(graph, self.agents, policy, trained)

    def _named(self, policy: str, metrics: Mapping[str, float]) -> dict[str, float]:
        """The metrics of a policy. If there are several policies, `POLICY/` comes before each name."""
        return {key if len(self.learners) == 1 else f"{policy}/{key}": value for key, value in metrics.items()}

    def _improve_one(self, policy: str, graph: StepGraph, credit: Credit, iteration: int) -> dict[str, float]:
        """Update the critic, if there is one. After the first `critic.warmup` iterations, update the policy too."""
        tables, learner = self.settings.tables, self.learners[policy]
        metrics: dict[str, float] = {}
        if learner.critic is not None:
            limit, unit = tables.update.max_tokens, tables.update.unit
            metrics = learner.critic.fit(graph, credit, unit=unit, max_tokens=limit, seed=iteration)
            if iteration < tables.critic.warmup:
                return metrics
        updated = update(
            learner,
            graph,
            credit,
            tables.update,
            self.settings.loss,
            temperature=tables.sampling.temperature,
            seed=iteration,
            regularizers=self.regularizers[policy],
            beside=trunk_gradient(learner.critic, graph, credit, tables.update.max_tokens),
        )
        return {**metrics, **updated}


def _stateful(fillers: Mapping[str, object]) -> Iterator[tuple[str, Stateful]]:
    for name, filler in fillers.items():
        if isinstance(filler, Stateful):
            yield name, filler


def _readable(model: Any, policy: str, policies: Policies) -> Any:
    """The model; a `DividedModel` is read through `policies`, so that all ranks take part."""
    if not isinstance(model, DividedModel):
        return model
    return DividedModel(model.shell, model.device, partial(policies.gathered, policy), partial(policies.logits, policy))


def _divided(learner: RunLearner) -> Learner:
    return cast("Learner", learner)  # only a learner of this run's processes is divided


def _local_learner(
    settings: Settings, policy: str, at: Path | None, vocabularies: Mapping[str, Vocabulary], ranks: Ranks | None
) -> Learner:
    """The learner of a policy whose weights are in this process."""
    tables, plan = settings.tables, settings.policies[policy]
    return Learner(
        _model(settings, policy, vocabularies, at),
        plan.optim,
        reference=tables.update.kl_coef > 0,
        initial=tables.update.kl_reference == "initial",
        critic=critic_maker(tables.critic, plan.model, tables.run.seed),
        config=tables.learner,
        ranks=ranks,
        copied=not settings.engine.hooks.folders,
    )


def _model(settings: Settings, policy: str, vocabularies: Mapping[str, Vocabulary], at: Path | None) -> Loaded:
    """The model of a policy, from the checkpoint `at` or, if `at` is None, as the recipe says (`path` or `new`).

    If the policy has adapters, a checkpoint holds only the adapters, and the base model is made as the recipe says.
    """
    config, seed = settings.policies[policy].model, settings.tables.run.seed
    if at is not None and config.lora is None:
        stored = load_model(config.model_copy(update={"path": str(at / policy), "new": None}), seed)
        if config.new is not None:
            check_shape(stored.model, config.new, at)
        return stored
    words = None if config.new is None else vocabularies[policy]
    known = {} if words is None else {"texts": words.texts, "entities": words.entities}
    loaded = load_model(config, seed, **known)
    if at is not None:
        restore_model(loaded, at / policy)
    return loaded
