"""Resolves the tables of a recipe to typed sections and catalogue entries, and checks that they fit together."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.catalogue import load, located
from agentrl.config import Entry, merge, override, parse_value, resolve, validate
from agentrl.credit import CreditMethod, RewardTransform, resolve_rewards
from agentrl.engines import Demands, EngineFile
from agentrl.env import EnvironmentFile, check_expert
from agentrl.files import read_toml
from agentrl.loss import Loss
from agentrl.model import check_template
from agentrl.rollout import ContextPolicy, GuideFile, ReplayFile, RolloutMethod, SamplerFile
from agentrl.scoring import ScoreFile, resolve_scores
from agentrl.secret import redacted
from agentrl.settings import agents, defaults, fits
from agentrl.settings.idle_options import idle_notes
from agentrl.settings.lone_episodes import lone_note
from agentrl.settings.refused_pairs import REFUSED, check_pairs
from agentrl.settings.sections import MANY, Tables, tracker_sections
from agentrl.settings.trust import checked_recipe, completing
from agentrl.trainer import RegularizerFile
from agentrl.trainer.sections import OptimConfig

SERVICES = {"tinker": "agentrl.tinker"}  # learner.name -> the package with its `check_settings` and `check_here`


class Settings:
    """A resolved configuration: typed sections, and the catalogue entries that they name. No torch is imported.

    Attributes:
        tables: the typed sections.
        chosen: values that the recipe leaves to `agentrl.settings.defaults`, by dotted key.
        notes: sentences on the configuration that a user should read.
        recipe: name of the recipe's file without `.toml`; empty if the tables do not come from a file.
    """

    recipe = ""

    def __init__(self, tables: Mapping[str, Any], *, stored: bool = False) -> None:
        """Resolve a recipe. With `stored`, resolve the configuration that a run has stored, and choose no values.

        Raises:
            ValueError: a key or value is wrong, or two sections do not fit together. The message names the keys and
                what to change.
        """
        self._given = merge(tables, {})
        if not stored:
            fits.check_sections(tables)
        given = validate(Tables, self._given)
        env = resolve(EnvironmentFile, given.env, "env")
        engine = resolve(EngineFile, {"name": "hf", **given.engine}).hooks
        self.chosen = {} if stored else defaults.choose(given, env, engine)
        self.notes = list(filter(None, [] if stored else [defaults.note(given)]))
        self.tables = validate(Tables, merge(self._given, defaults.nested(self.chosen)))
        self.env = resolve(EnvironmentFile, self.tables.env, "env")
        self.eval_env = resolve(EnvironmentFile, merge(self.tables.env, self.tables.eval.env), "eval.env")
        self.engine = resolve(EngineFile, {"name": "hf", **self.tables.engine})
        self.context = resolve(ContextPolicy, self.tables.context)
        self.sampler = resolve(SamplerFile, self.tables.sampler)
        self.guide = resolve(GuideFile, self.tables.guide) if self.tables.guide else None
        self.replay = resolve(ReplayFile, self.tables.replay) if self.tables.replay else None
        self.rollout = resolve(RolloutMethod, self.tables.rollout)
        self.score: tuple[Entry[ScoreFile], ...] = resolve_scores(self.tables.score)
        self.reward: tuple[Entry[RewardTransform], ...] = resolve_rewards(self.tables.reward)
        self.credit = resolve(CreditMethod, self.tables.credit)
        self.loss = resolve(Loss, self.tables.loss)
        self.tables = self.tables.model_copy(update={"update": self.tables.update.resolved(self.loss)})
        self.regularizers = tuple(
            resolve(RegularizerFile, table, f"update.regularizers.{place}")
            for place, table in enumerate(self.tables.update.regularizers)
        )
        self.clone_optim: OptimConfig = validate(
            OptimConfig, merge(self.tables.optim.model_dump(), self.tables.warmup.optim), "warmup.optim"
        )
        self.sections = agents.agent_sections(
            self.env, self.tables.agents, self.tables.model, "optim.lr" in self.chosen
        )
        self.agents = agents.resolve_agents(
            self.env, self.context, self.tables.limits, self.tables.warmup.expert, self.sections
        )
        self.policies = agents.policy_plans(self.sections, self.tables.model, self.tables.optim, self.clone_optim)
        self.trackers = self._trackers()
        found = [note(self.tables) for note in (fits.overlap_note, fits.best_note)]
        found += [self._dropout_note(), fits.no_gradient(self.tables.update), *idle_notes(self)]
        self._check_stages()
        if self.tables.run.iterations and not (self.guide or self.replay or self.sampler.hooks.uneven):
            found.append(lone_note(self.credit, self.rollout, self.tables.batch.copies))
        self.notes += filter(None, found)

    @property
    def provision(self) -> float:
        """Number of groups that are begun per group that a batch takes."""
        return fits.provision_of(self.rollout)

    @property
    def keeps_leftover(self) -> bool:
        """Do groups that did not finish in a batch continue in the next batch?"""
        return fits.keeps_leftover(self.rollout)

    @property
    def declared_signals(self) -> set[str]:
        """The signals that the environments of the agents say that they report."""
        return {name for names in fits.declared_signals(self.agents.values()) for name in names or ()}

    @property
    def imitates(self) -> bool:
        """Does a regularizer imitate demonstrations?"""
        return any(entry.hooks.demonstrations for entry in self.regularizers)

    def _trackers(self) -> tuple[Entry[Any], ...]:
        """The trackers of [log]."""
        log = self.tables.log
        sections = tracker_sections(log.to, log.options)
        return tuple(resolve("tracker", section, f"log.options.{section['name']}") for section in sections)

    def _check_stages(self) -> None:
        """Raises ValueError if two sections do not fit together. No section can check this alone."""
        tables, program = self.tables, next(iter(self.agents.values())).program
        fits.check_scores(self.score, tables.scoring, self.reward, self.agents)
        fits.check_signals(self.reward, self.score, self.agents.values())
        fits.check_guide(self.guide, self.regularizers)
        fits.check_cluster(tables)
        if tables.learner.remote:
            located(f"{SERVICES[tables.learner.name]}:check_settings")(self)
        check_pairs(self, REFUSED)
        self._check_experts()
        self._check_engine()
        if program is not None:
            program.lockstep = tables.run.deterministic
        if not any(agent.trained for agent in self.agents.values()):
            raise ValueError("no agent is trained: set trained=true for one of [agents]")
        if tables.run.iterations:
            own = fits.fillers(self.credit, self.context, self.env)
            filled = fits.filled_columns(tables.critic, self.rollout.hooks, own)
            for method, config in self.credit.hooks.layers(self.credit.config):
                fits.check_columns(method, filled, config)
                fits.check_agents(method, len(self.agents), program is not None)
        if tables.run.iterations and self.episodes > MANY:
            raise ValueError(
                f"rollout.name={self.rollout.name} makes {self.episodes} episodes per iteration, and the limit is "
                f"{MANY}: lower batch.tasks or batch.copies"
            )

    def _check_experts(self) -> None:
        """Raises ValueError if the run needs an expert that the environment of an agent does not have."""
        tables, guide = self.tables, self.guide
        if guide is not None and guide.hooks.expert is not None and guide.hooks.expert(guide.config):
            check_expert(self.env, tables.warmup.expert, "warmup.expert")
        if tables.warmup.updates or tables.model.new is not None:
            for name, agent in self.agents.items():
                where = f"agents.{name}.expert" if name in self.sections and name != agents.MAIN else "warmup.expert"
                if tables.warmup.updates or agent.env.hooks.expert is not None:
                    check_expert(agent.env, agent.expert, where)

    def _check_engine(self) -> None:
        """Raises ValueError if the engine cannot do what the run asks of it."""
        tables = self.tables
        if not self.engine.hooks.weights:
            raise ValueError(
                f"engine.name={self.engine.name} generates with weights of its own, which a run cannot train: choose "
                "engine.name=hf (an endpoint is evaluated with agentrl eval ENV --policy openai:MODEL)"
            )
        if self.engine.hooks.check is not None:
            demands = Demands(
                sampling=tables.sampling,
                deterministic=tables.run.deterministic,
                entropies=self.rollout.hooks.entropy,
                policies=len(self.policies),
                lora=any(plan.model.lora is not None for plan in self.policies.values()),
                staleness=tables.run.staleness,
                nats=tables.log.entropies,
            )
            self.engine.hooks.check(self.engine.config, demands)

    def _dropout_note(self) -> str:
        """A note if no update has the dropout of [model.lora]; else empty."""
        shares = [plan.model.lora.dropout for plan in self.policies.values() if plan.model.lora is not None]
        if self.tables.learner.keep_dropout or not any(shares):
            return ""
        return (
            f"model.lora.dropout = {max(shares):g} has no effect: updates have no dropout, as rollouts have none; "
            "learner.keep_dropout=true keeps it"
        )

    def check_here(self) -> None:
        """Raises ValueError if this machine lacks what the training service of the recipe asks for."""
        if self.tables.learner.remote:
            located(f"{SERVICES[self.tables.learner.name]}:check_here")(self)

    def check_new(self) -> None:
        """Check what a new run must not have, but a run that an older version has stored may have.

        Raises:
            ValueError: the KL term of the loss has no gradient, `model.template` does not fit a model's template, or
                the engine has weights that the learner does not train.
        """
        if self.engine.name in SERVICES and self.tables.learner.name != self.engine.name:
            raise ValueError(
                f"engine.name={self.engine.name} samples with the weights of a training service, and learner.name="
                f"{self.tables.learner.name} trains others: set learner.name={self.engine.name}, or engine.name=hf"
            )
        for plan in self.policies.values():
            if plan.model.new is None:
                check_template(plan.model)
        if wrong := fits.no_gradient(self.tables.update):
            raise ValueError(wrong)

    def resuming(self, stored: Mapping[str, Any]) -> "Settings":
        """These settings, with stored values for the keys that the recipe leaves open.

        So a run of an older version continues with its values, although today's defaults may differ.
        """
        then = completing(self, stored).dump()
        known = {path: value for path in self.chosen if (value := defaults.stored_value(then, path)) is not None}
        resumed = type(self)(merge(self._given, defaults.nested(known)))
        resumed.recipe = self.recipe
        return resumed

    def fitted(self, values: Mapping[str, Any]) -> "Settings":
        """These settings with `values` (dotted key -> value) in place of chosen values; values of the recipe stay."""
        fitting = {path: value for path, value in values.items() if path in self.chosen}
        if all(self.chosen[path] == value for path, value in fitting.items()):
            return self
        fitted = type(self)(merge(self._given, defaults.nested({**self.chosen, **fitting})))
        fitted.recipe, fitted.chosen, fitted.notes = self.recipe, {**self.chosen, **fitting}, self.notes
        return fitted

    @classmethod
    def load(cls, recipe: Path, overrides: Sequence[str] = (), *, trust: bool = False) -> "Settings":
        """The settings of a recipe with overrides. Without `run.name`, the run has the name of the recipe's file."""
        tables = merge({"run": {"name": recipe.stem}}, read_toml(recipe))
        tables, left_out = _for_another_engine(tables, overrides)
        try:
            with checked_recipe(recipe, tables, overrides, trust=trust):
                settings = cls(override(tables, overrides))
        except ValueError as error:
            raise ValueError(f"{error}{_left_over(str(error), tables, overrides)}") from None
        settings.recipe = recipe.stem
        settings.notes += filter(None, [left_out])
        return settings

    @property
    def episodes(self) -> int:
        """Number of episodes per iteration of training, if neither the sampler nor a budget changes this number."""
        batch = self.tables.batch
        return batch.tasks * self.rollout.hooks.leaves(self.rollout.config, batch.copies)

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return Path(self.tables.run.folder) / self.tables.run.name

    def shown(self) -> dict[str, Any]:
        """`dump` with hidden secrets (see `agentrl.secret`): the configuration that is printed and stored."""
        tables: dict[str, Any] = redacted(self.dump())
        return tables

    def dump(self) -> dict[str, Any]:
        """Every section with every default written out, as plain TOML values (None left out)."""
        values = self.tables.model_dump(mode="json")
        for name in ("env", "engine", "context", "sampler", "rollout", "credit", "loss"):
            entry: Entry[Any] = getattr(self, name)
            values[name] = entry.dump()
        values["guide"] = {} if self.guide is None else self.guide.dump()
        values["replay"] = {} if self.replay is None else self.replay.dump()
        values["agents"] = {name: section.model_dump(mode="json") for name, section in self.sections.items()}
        for name in ("score", "reward"):
            dumped = [entry.dump() for entry in getattr(self, name)]
            values[name] = dumped if isinstance(getattr(self.tables, name), list) else dict(*dumped)
        values["update"]["regularizers"] = [entry.dump() for entry in self.regularizers]
        plain: dict[str, Any] = _without_none(values)
        return plain


def _for_another_engine(tables: dict[str, Any], overrides: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The recipe without the options that the engine of an override lacks, and a note that names them.

    So one recipe runs on any engine: the override engine.name=hf leaves out the servers and GPUs that the recipe sets
    for vllm. A key that neither engine has stays, so that it is reported as a mistake.
    """
    engine = tables.get("engine", {})
    words = [text.partition("=") for text in overrides]
    chosen = [parse_value(value.strip()) for key, _, value in words if key.strip() == "engine.name"]
    before = engine.get("name", "hf") if isinstance(engine, Mapping) else None
    if not chosen or not isinstance(chosen[-1], str) or not isinstance(before, str):
        return tables, ""
    name = chosen[-1]
    lacking = load(EngineFile, before).config.model_fields.keys() - load(EngineFile, name).config.model_fields.keys()
    left = [key for key in engine if key in lacking]
    if not left:
        return tables, ""
    kept = {key: value for key, value in engine.items() if key not in lacking}
    note = f"engine.name={name} has no {', '.join(left)}: what the recipe sets there for {before} is left out"
    return {**tables, "engine": kept}, note


def _left_over(told: str, tables: Mapping[str, Any], overrides: Sequence[str]) -> str:
    """What to add to an error message: how to leave out the options of a recipe that the entry of an override lacks.

    Empty if the error `told` has another cause.
    """
    for text in overrides:
        key, _, name = text.partition("=")
        section = key.strip().removesuffix(".name")
        old = tables.get(section) if section != "engine" else None
        if key.strip() == f"{section}.name" and isinstance(old, Mapping) and told.startswith(f"unknown key {section}."):
            return (
                f"; the recipe's other keys of [{section}] are options of {old.get('name', 'the default')}: write "
                f"\"{section}={{name='{name.strip()}'}}\" to leave them out"
            )
    return ""


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    return [_without_none(v) for v in value] if isinstance(value, list | tuple) else value
