"""Who is evaluated: a run, a model folder, an endpoint, an expert or chance, from one word of the command line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agentrl import catalogue
from agentrl.config import Entry, merge, resolve, validate
from agentrl.engines import EngineFile, Serving, stopping
from agentrl.env import EnvironmentFile, Limits, Pool, pool_within
from agentrl.files import read_toml
from agentrl.rollout import (
    Actor,
    Agent,
    ContextPolicy,
    Crew,
    ExpertActor,
    Player,
    PolicyActor,
    Random,
    Scripted,
    read_actions,
)
from agentrl.secret import HIDDEN, hidden_url
from agentrl.settings import POLICY, agent_sections, resolve_agents

CONTEXT = 4096  # most tokens of context for a model folder, which has no recipe to say


@dataclass(kw_only=True)
class Contestant:
    """A policy to evaluate, and the settings it brings.

    Attributes:
        word: as given.
        kind: run, model, openai, random, scripted or expert.
        tables: the configuration of the run it comes from, else empty.
        env_options: options of the environment the run was trained on, its evaluation options on top.
        said: what reports say, filled in by `player`.
        opened: pools of agents that are called, closed by `close`.
    """

    word: str
    kind: str
    tables: dict[str, Any] = field(default_factory=dict)
    env_options: dict[str, Any] = field(default_factory=dict)
    said: dict[str, object] = field(default_factory=dict)
    opened: list[Pool] = field(default_factory=list)

    @classmethod
    def of(cls, word: str, env: str, options: Mapping[str, Any] = MappingProxyType({})) -> "Contestant":
        """Read the word; ValueError if it names nothing. `options` of the environment replace what a run hides."""
        if word.startswith("openai:"):
            return cls(word=word, kind="openai")
        if word.startswith("scripted:"):
            return cls(word=word, kind="scripted")
        if word == "random":
            return cls(word=word, kind="random")
        experts = catalogue.load(EnvironmentFile, env).experts or ()
        if word in experts or word.partition(":")[0] in experts:
            return cls(word=word, kind="expert")
        path = Path(word)
        if (path / "config.toml").is_file():
            return cls._of_run(path, env, options)
        if (path / "config.json").is_file():
            return cls(word=word, kind="model")
        known = dict.fromkeys(("random", *experts, "openai:MODEL", "scripted:FILE"))
        raise ValueError(
            f"{word!r} is no policy: it is no run folder (config.toml), no model folder (config.json), and not one of "
            f"{', '.join(known)}"
        )

    @classmethod
    def _of_run(cls, path: Path, env: str, options: Mapping[str, Any]) -> "Contestant":
        from agentrl.settings import Settings

        stored = read_toml(path / "config.toml")
        if HIDDEN in str(stored) and stored.get("env", {}).get("name") == env:
            stored = merge(stored, {"env": options})
        tables = Settings(stored).dump()  # options added since it began get their defaults
        trained_on = dict(tables["env"])
        found: dict[str, Any] = {}
        if trained_on.pop("name") == env:
            found = {**trained_on, **tables.get("eval", {}).get("env", {})}
        return cls(word=str(path), kind="run", tables=tables, env_options=found)

    def describe(self) -> dict[str, object]:
        """What the report says about it."""
        return {"policy": hidden_url(self.word), **self.said}

    def limits(self, given: Mapping[str, Any] = MappingProxyType({})) -> Limits:
        """The run's own limits, else the usual ones; those given replace theirs."""
        return validate(Limits, merge(self.tables.get("limits", {}), given), "limits")

    def crew(self, entry: Entry[EnvironmentFile], pool: Pool, *, seed: int, limits: Limits) -> Crew:
        """The agents that take part: the one that plays `pool`, and those that the environment or the run adds."""
        chosen = agent_sections(entry, self.tables.get("agents", {}) if self.env_options else {})
        context = resolve(ContextPolicy, self.tables.get("context", {"name": "full"}))
        agents = resolve_agents(entry, context, limits, self.word, chosen)
        main, *called = agents
        pools = {name: pool_within(agents[name].env, agents[name].limits) for name in called}
        self.opened += pools.values()
        return Crew(agents, {main: pool, **pools}, admissible=self._admissible(), seed=seed)

    def player(
        self, entry: Entry[EnvironmentFile], pool: Pool, *, seed: int, temperature: float | None, limits: Limits
    ) -> Player:
        """How it plays the environment."""
        crew = self.crew(entry, pool, seed=seed, limits=limits)
        models: dict[str, PolicyActor] = {}  # by policy, so that agents that share one share its engine
        return crew.player({name: self._actor(agent, crew, temperature, models) for name, agent in crew.agents.items()})

    def close(self) -> None:
        """Close the pools of agents that were called."""
        for pool in self.opened:
            pool.close()

    def _admissible(self) -> bool:
        return bool(self.tables) and self.tables["engine"]["actions"] == "admissible"

    def _actor(self, agent: Agent, crew: Crew, temperature: float | None, made: dict[str, PolicyActor]) -> Actor:
        """Who answers for an agent; a script speaks for the first one only, the others' experts for themselves."""
        first = agent is next(iter(crew.agents.values()))
        if self.kind == "expert" or (self.kind == "scripted" and not first):
            return ExpertActor(agent.expert, agent.prompt)
        if self.kind == "random":
            return PolicyActor(Random(agent.prompt), None, None)
        if self.kind == "scripted":
            actions = read_actions(Path(self.word.removeprefix("scripted:")))
            return PolicyActor(Scripted([agent.prompt.answer(action) for action in actions]), None, None)
        policy = agent.policy if self.kind == "run" else POLICY
        if policy not in made:
            of_it = [a for a in crew.agents.values() if self.kind != "run" or a.policy == policy]
            made[policy] = (
                self._endpoint(of_it, temperature) if self.kind == "openai" else self._model(policy, of_it, temperature)
            )
        return made[policy]

    def _endpoint(self, agents: Sequence[Agent], temperature: float | None) -> PolicyActor:
        from agentrl.engines import from_word

        most = max(agent.limits.turn_tokens for agent in agents)
        endpoint = from_word(self.word, temperature=temperature, max_tokens=most)
        self.said = endpoint.describe()
        return PolicyActor(endpoint, None, None)

    def _model(self, policy: str, agents: Sequence[Agent], temperature: float | None) -> PolicyActor:
        """A model on disk: a policy of a run's latest checkpoint with the run's settings, or a plain folder."""
        import torch

        from agentrl.chat import Chat
        from agentrl.engines import Sampling, base_config
        from agentrl.model import load_model, sections
        from agentrl.run.folder import RunFolder

        run = self.kind == "run"
        path = RunFolder(Path(self.word)).latest() / policy if run else Path(self.word)
        sampling = Sampling.model_validate(self.tables.get("sampling", {}))
        if temperature is not None:
            sampling = sampling.model_copy(update={"temperature": temperature})
        if run and self.tables["run"]["threads"]:
            torch.set_num_threads(self.tables["run"]["threads"])
        loaded = load_model(sections.ModelConfig(path=str(path)), 0)
        positions = getattr(base_config(loaded.model), "max_position_embeddings", None) or CONTEXT
        plain = {"name": "hf", "max_slots": 64, "max_context": min(CONTEXT, positions)}
        entry = resolve(EngineFile, self.tables["engine"] if run else plain)
        serving = Serving(
            model=loaded.model,
            tokenizer=loaded.tokenizer,
            sampling=stopping(sampling, *(agent.prompt for agent in agents)),
            deterministic=True,
        )
        engine = entry.hooks.make(entry.config, serving)
        self.said = self.said or engine.describe()
        return PolicyActor(engine, Chat(loaded.tokenizer), entry.config.max_context)
