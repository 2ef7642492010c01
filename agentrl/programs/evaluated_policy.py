"""Resolves `--policy` (run, model folder, endpoint, expert, random, script) into a policy that can play."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from agentrl import catalogue
from agentrl.config import Entry, merge, resolve, validate
from agentrl.engines import EngineFile, Serving, stopping
from agentrl.engines.openai import endpoint_of
from agentrl.env import EnvironmentFile, Limits, Pool, check_expert, pool_within
from agentrl.extras import require_training
from agentrl.files import read_toml
from agentrl.rollout import (
    Actor,
    Agent,
    ContextPolicy,
    EpisodeProgram,
    Player,
    PlayerFactory,
    PolicyActor,
    Random,
    Scripted,
    expert_actor,
    read_actions,
)
from agentrl.secret import HIDDEN, hidden_url
from agentrl.settings import POLICY, agent_sections, resolve_agents

if TYPE_CHECKING:
    from agentrl.engines.openai import OpenAIPolicy

CONTEXT = 4096  # engine.max_context of a model folder, which has no recipe; less if the model has fewer positions


@dataclass(kw_only=True)
class EvaluatedPolicy:
    """A policy to evaluate, and the settings that come with it.

    Attributes:
        word: value of `--policy`.
        kind: run, model, openai, random, scripted or expert.
        tables: the configuration of the run that the policy comes from; empty for other policies.
        env_options: the run's sections [env] and [eval.env] together; a value of [eval.env] replaces that of [env].
            Empty if the run was trained on another environment, or if the policy comes from no run.
        told: the part of `env_options` that comes from [eval.env] of the run.
        endpoint: options of the endpoint, see `agentrl.engines.openai.endpoint.Endpoint`.
        template: options `template` and `template_file` of the section [model], for a model folder.
        served: the endpoint's policy; None before `player` makes it, and without an endpoint.
        description: description of the model for reports, which `player` fills in; empty if no model plays.
        opened: pools of the called agents; `close` closes them.
        programs: programs that play the tasks; `close` closes the endpoint of each program.
        engines: engines of models, and what ends what each of them started; `close` calls it.
    """

    word: str
    kind: str
    tables: dict[str, Any] = field(default_factory=dict)
    env_options: dict[str, Any] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)
    endpoint: dict[str, Any] = field(default_factory=dict)
    template: dict[str, Any] = field(default_factory=dict)
    served: "OpenAIPolicy | None" = None
    description: dict[str, object] = field(default_factory=dict)
    opened: list[Pool] = field(default_factory=list)
    programs: list[EpisodeProgram] = field(default_factory=list)
    engines: list[tuple[Any, Callable[[Any], None]]] = field(default_factory=list)

    @classmethod
    def of(
        cls, word: str, env: str, options: Mapping[str, Any] = MappingProxyType({}), *, trust: bool = False
    ) -> "EvaluatedPolicy":
        """The policy that the value of `--policy` names.

        If a run's stored configuration hides secrets, `options` of the environment replace the hidden values.

        Raises:
            ValueError: it names no policy.
            UntrustedCode: it is a run whose stored configuration names code besides `env` and `options`, and `trust` is
                false.
        """
        if word.startswith("openai:"):
            return cls(word=word, kind="openai")
        if word.startswith("scripted:"):
            if not word.removeprefix("scripted:").strip():
                raise ValueError(f"{word!r} names no file: write scripted:FILE, a file of actions, one per line")
            return cls(word=word, kind="scripted")
        if word == "random":
            return cls(word=word, kind="random")
        experts = catalogue.load(EnvironmentFile, env).experts or ()
        if word in experts or word.partition(":")[0] in experts:
            check_expert(Entry(env, catalogue.load(EnvironmentFile, env), None), word, "--policy")
            return cls(word=word, kind="expert")
        path, checkpoint = _run_and_checkpoint(word)
        if (path / "config.toml").is_file():
            return cls._of_run(path, env, options, trust, checkpoint)
        if (path / "config.json").is_file():
            return cls(word=word, kind="model")
        known = list(dict.fromkeys(("random", *experts, "openai:MODEL", "scripted:FILE")))
        base = word.partition(":")[0]
        close = get_close_matches(base, ["random", *experts, "openai", "scripted"], n=1)
        what = "is empty" if not word.strip() else "is no policy"
        if close:
            raise ValueError(f"{word!r} {what}: did you mean {close[0]}{word[len(base) :]}?")
        raise ValueError(
            f"{word!r} {what}: name a run folder (config.toml), a model folder (config.json), or one of "
            f"{', '.join(known)}"
        )

    @classmethod
    def _of_run(
        cls, path: Path, env: str, options: Mapping[str, Any], trust: bool, checkpoint: str = ""
    ) -> "EvaluatedPolicy":
        from agentrl.settings import EVALUATED, Settings, checked, values_in, without_engine

        stored = read_toml(path / "config.toml")
        env, _ = catalogue.aliases("envs").get(env, (env, {}))
        if HIDDEN in str(stored) and stored.get("env", {}).get("name") == env:
            stored = merge(stored, {"env": options})
        # Only these sections play. No iterations: the others, such as the credit method, need not fit together.
        playing = merge({name: stored[name] for name in EVALUATED if name in stored}, {"run": {"iterations": 0}})
        with checked(without_engine(playing), path / "config.toml", trust=trust, named={env, *values_in(options)}):
            tables = Settings(playing, stored=True).dump()  # options that are newer than the run get their defaults
        trained_on = dict(tables["env"])
        found: dict[str, Any] = {}
        told: dict[str, Any] = {}
        if trained_on.pop("name") == env:
            told = dict(tables.get("eval", {}).get("env", {}))
            found = {**trained_on, **told}
        word = f"{path}@{checkpoint}" if checkpoint else str(path)
        return cls(word=word, kind="run", tables=tables, env_options=found, told=told)

    @classmethod
    def model(
        cls,
        word: str,
        temperature: float | None = None,
        template: Mapping[str, Any] = MappingProxyType({}),
        *,
        trust: bool = False,
    ) -> PolicyActor:
        """An actor that answers with a run's policy of the name `policy`, or with the model of a model folder.

        Args:
            word: the folder.
            temperature: sampling temperature; None for the run's, or 1.
            template: see `use_template`.

        Raises:
            ValueError: `word` is neither a run folder nor a model folder, `template` does not fit, or the run's policy
                answers only with listed actions.
            UntrustedCode: see `of`.
        """
        path, checkpoint = _run_and_checkpoint(word)
        if not (path / "config.toml").is_file() and not (path / "config.json").is_file():
            raise ValueError(f"{word!r} is no run folder (config.toml) and no model folder (config.json)")
        is_run = (path / "config.toml").is_file()
        own = cls._of_run(path, "", {}, trust, checkpoint) if is_run else cls(word=word, kind="model")
        own.use_template(template)
        if own.tables and own.tables["engine"]["actions"] == "admissible":
            raise ValueError(
                f"{word} has engine.actions=admissible: its policy answers only with actions that an environment lists,"
                f" and requests list none; name a model folder, such as {path / 'checkpoints' / 'NUMBER' / POLICY}"
            )
        return own._model(POLICY, (), temperature, deterministic=False)

    def use_template(self, options: Mapping[str, Any]) -> None:
        """Use the options `template` and `template_file` of a section [model] for a model folder.

        The chat template of a run is in its checkpoints.

        Raises:
            ValueError: the policy is no model folder, or there are other options.
        """
        if options and self.kind != "model":
            key = next(iter(options))
            raise ValueError(f"model.{key} is an option of model folders, and the policy is {self.word!r}")
        for key in options:
            if key not in ("template", "template_file"):
                raise ValueError(
                    f"unknown option model.{key}: a model folder takes model.template and model.template_file"
                )
        self.template = dict(options)

    @property
    def language_model(self) -> bool:
        """Is the policy a model folder or an endpoint, and not a run?"""
        return self.kind in ("openai", "model")

    @property
    def speaks(self) -> bool:
        """Does the policy answer a prompt in words? Experts, scripts and random players do not."""
        return self.kind in ("openai", "model", "run")

    @property
    def masked(self) -> bool:
        """Are the answers of the policy restricted to the admissible actions?"""
        return bool(self.tables) and self.tables["engine"]["actions"] != "free"

    def describe(self) -> dict[str, object]:
        """Description of the policy for reports."""
        return {"policy": hidden_url(self.word), **self.description}

    def limits(self, options: Mapping[str, Any] = MappingProxyType({})) -> Limits:
        """The limits of the episodes: those of the run, or the defaults without a run; `options` override them.

        For an endpoint, the default of `concurrency` is the number of requests that the endpoint may get at once. So
        no more episodes are played at the same time, and the first episodes end early and are stored early.
        """
        limits = validate(Limits, merge(self.tables.get("limits", {}), options), "limits")
        if self.kind != "openai" or "concurrency" in options:
            return limits
        return limits.model_copy(update={"concurrency": endpoint_of(self.word, self.endpoint).concurrency})

    def crew(self, entry: Entry[EnvironmentFile], pool: Pool, *, seed: int, limits: Limits) -> PlayerFactory:
        """The crew. Its first agent plays the environments of `pool`; the environment or the run may add others."""
        sections = agent_sections(entry, self.tables.get("agents", {}) if self.env_options else {})
        context = resolve(ContextPolicy, self.tables.get("context", {"name": "full"}))
        agents = resolve_agents(entry, context, limits, self.word, sections)
        main, *called = agents
        pools = {name: pool_within(agents[name].env, agents[name].limits) for name in called}
        self.opened += pools.values()
        self.programs += [agent.program for agent in agents.values() if agent.program is not None]
        return PlayerFactory(agents, {main: pool, **pools}, admissible=self.masked, seed=seed)

    def player(
        self,
        entry: Entry[EnvironmentFile],
        pool: Pool,
        *,
        seed: int,
        temperature: float | None,
        limits: Limits,
        probe: bool = False,
    ) -> Player:
        """A player of the policy on the environments of `pool`.

        Args:
            entry: the environment.
            pool: the instances of the environment.
            seed: part of the noise keys, from which the random numbers of sampling are computed.
            temperature: temperature of sampling; None takes the temperature of the policy's settings.
            limits: limits of the episodes.
            probe: send an endpoint one short request first, see `OpenAIPolicy.probe`.

        Raises:
            ValueError: a setting is wrong, a model cannot be loaded, or the endpoint does not answer.
        """
        crew = self.crew(entry, pool, seed=seed, limits=limits)
        if self.kind == "openai":
            self._serve(crew, temperature, probe)
        models: dict[str, PolicyActor] = {}  # by name of the policy: agents with the same policy share its engine
        return crew.player({name: self._actor(agent, crew, temperature, models) for name, agent in crew.agents.items()})

    def close(self) -> None:
        """Close the pools of the called agents, the endpoints of programs, and connections to training services."""
        for pool in self.opened:
            pool.close()
        for program in self.programs:
            program.close()
        for engine, close in self.engines:
            close(engine)

    def _actor(
        self, agent: Agent, crew: PlayerFactory, temperature: float | None, models: dict[str, PolicyActor]
    ) -> Actor:
        """The actor of an agent. A script answers for the first agent only; experts answer for the other agents."""
        first = agent is next(iter(crew.agents.values()))
        if self.kind == "expert" or (self.kind == "scripted" and not first):
            return expert_actor(agent)
        if self.kind == "random":
            return PolicyActor(Random(agent.prompt), None, None)
        if self.kind == "scripted":
            actions = read_actions(Path(self.word.removeprefix("scripted:")))
            return PolicyActor(Scripted([agent.prompt.answer(action) for action in actions]), None, None)
        policy = agent.policy if self.kind == "run" else POLICY
        if policy not in models:
            agents = [a for a in crew.agents.values() if self.kind != "run" or a.policy == policy]
            models[policy] = (
                PolicyActor(self.served, None, None)
                if self.served is not None
                else self._model(policy, agents, temperature)
            )
        return models[policy]

    def _serve(self, crew: PlayerFactory, temperature: float | None, probe: bool) -> None:
        """Make the endpoint's policy. If tools go to the server as data, the prompts leave out the list of tools.

        Tools go as data if `endpoint.tool_calls` is "native". If it is "auto", they do so only if a first short request
        shows that the server accepts them.
        """
        from agentrl.engines.openai import from_word

        most = max(agent.limits.turn_tokens for agent in crew.agents.values())
        served = from_word(self.word, self.endpoint, temperature=temperature, max_tokens=most)
        options, self.served, self.description = served.endpoint, served, served.describe()
        with_tools = {name: agent for name, agent in crew.agents.items() if hasattr(agent.prompt, "as_native")}
        schemas = [schema for agent in with_tools.values() for schema in getattr(agent.prompt, "schemas", ())]
        native = options.tool_calls == "native"
        if probe and options.probe_s:
            takes = served.probe(schemas if options.tool_calls != "text" else ())
            native = takes and options.tool_calls != "text"
            if not takes and options.tool_calls == "native":
                raise ValueError(f"{served.name} refuses tools as data: set endpoint.tool_calls=text")
        if not with_tools:
            return
        if native:
            changed = {name: replace(agent, prompt=agent.prompt.as_native()) for name, agent in with_tools.items()}  # type: ignore[attr-defined]
            crew.agents = {**crew.agents, **changed}
        self.description["tool_calls"] = "native" if native else "text"

    def _model(
        self, policy: str, agents: Sequence[Agent], temperature: float | None, deterministic: bool = True
    ) -> PolicyActor:
        """An actor with a model on disk: a policy of a run's checkpoint, or the model of a model folder."""
        require_training(f"the policy {hidden_url(self.word)}")
        import torch

        from agentrl.chat import Chat, date_of
        from agentrl.engines import Sampling
        from agentrl.model import SERVED_FILE, load_model, read_served, sections, served_tokenizer
        from agentrl.run import RunFolder

        run = self.kind == "run"
        folder, checkpoint = _run_and_checkpoint(self.word)
        path = RunFolder(folder).checkpoint(checkpoint) / policy if run else Path(self.word)
        sampling = Sampling.model_validate(self.tables.get("sampling", {}))
        if temperature is not None:
            sampling = sampling.model_copy(update={"temperature": temperature})
        if run and self.tables["run"]["threads"]:
            torch.set_num_threads(self.tables["run"]["threads"])
        stored = validate(sections.ModelConfig, {**self.template, "path": str(path)}, "model")
        if run and (path / SERVED_FILE).is_file():
            served = read_served(path)
            model, tokenizer = None, served_tokenizer(stored)
            at = {"name": "tinker", "url": served["url"], "path": served["sampler"], "checkpoint": served["state"]}
            entry = resolve(EngineFile, {**at, "max_context": self.tables["engine"]["max_context"]})
        else:
            model, tokenizer = load_model(stored, 0)
            entry = self._embedded(model, run)
        chat = Chat(tokenizer, date_of(self.tables["run"].get("date", "")) if run else None)
        serving = Serving(
            model=model,
            tokenizer=tokenizer,
            sampling=stopping(sampling, *(agent.prompt for agent in agents)),
            deterministic=deterministic,
            end_ids=chat.end_ids,
        )
        try:
            engine = entry.hooks.make(entry.config, serving)
        except ValueError as error:
            if model is not None:
                raise
            # There is no section [engine] in which the address could be corrected.
            raise ValueError(str(error).replace("engine.url", f"url in {path / SERVED_FILE}")) from None
        if entry.hooks.close is not None:
            self.engines.append((engine, entry.hooks.close))
        template = {"template": self.template} if self.template else {}
        self.description = self.description or {**engine.describe(), **template}
        return PolicyActor(engine, chat, entry.config.max_context, policy if run else None)

    def _embedded(self, model: Any, run: bool) -> Entry[EngineFile]:
        """The engine for a model of this process: the run's, or the embedded engine.

        An engine with the hook `close` starts servers, and this class would not end them. So the embedded engine, which
        samples from the same distribution, takes the place of such an engine.
        """
        from agentrl.engines import base_config

        positions = getattr(base_config(model), "max_position_embeddings", None) or CONTEXT
        plain = {"name": "hf", "max_slots": 64, "max_context": min(CONTEXT, positions)}
        entry = resolve(EngineFile, self.tables["engine"] if run else plain)
        if entry.hooks.close is None:
            return entry
        kept = {"max_context": entry.config.max_context, "actions": entry.config.actions}
        return resolve(EngineFile, {**plain, **kept})


def _run_and_checkpoint(word: str) -> tuple[Path, str]:
    """(the folder, the name of a checkpoint) of a word such as `runs/NAME@best`; the name is empty without `@NAME`.

    A folder whose own name has an `@` is taken as it is.
    """
    folder, at, checkpoint = word.rpartition("@")
    if not at or Path(word).exists() or not (Path(folder) / "config.toml").is_file():
        return Path(word), ""
    return Path(folder), checkpoint
