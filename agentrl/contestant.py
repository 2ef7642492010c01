"""Who is evaluated: a run, a model folder, an endpoint, an expert or chance, from one word of the command line."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl import catalogue, world
from agentrl.config import Entry, read_toml, resolve
from agentrl.limits import Limits
from agentrl.policies import ExpertActor, Random, Scripted, read_actions
from agentrl.pool import Pool
from agentrl.prompt import Prompt, stopping
from agentrl.rollout import Actor, Player, PolicyActor

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
    """

    word: str
    kind: str
    tables: dict[str, Any] = field(default_factory=dict)
    env_options: dict[str, Any] = field(default_factory=dict)
    said: dict[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, word: str, env: str) -> "Contestant":
        """Read the word; ValueError if it names nothing."""
        if word.startswith("openai:"):
            return cls(word=word, kind="openai")
        if word.startswith("scripted:"):
            return cls(word=word, kind="scripted")
        if word == "random":
            return cls(word=word, kind="random")
        experts = tuple(getattr(catalogue.load("envs", env), "EXPERTS", ()))
        if word in experts or word.partition(":")[0] in experts:
            return cls(word=word, kind="expert")
        path = Path(word)
        if (path / "config.toml").is_file():
            return cls._of_run(path, env)
        if (path / "config.json").is_file():
            return cls(word=word, kind="model")
        known = dict.fromkeys(("random", *experts, "openai:MODEL", "scripted:FILE"))
        raise ValueError(
            f"{word!r} is no policy: it is no run folder (config.toml), no model folder (config.json), and not one of "
            f"{', '.join(known)}"
        )

    @classmethod
    def _of_run(cls, path: Path, env: str) -> "Contestant":
        from agentrl.settings import Settings

        tables = Settings(read_toml(path / "config.toml")).dump()  # options added since it began get their defaults
        trained_on = dict(tables["env"])
        options = {}
        if trained_on.pop("name") == env:
            options = {**trained_on, **tables.get("eval", {}).get("env", {})}
        return cls(word=str(path), kind="run", tables=tables, env_options=options)

    def describe(self) -> dict[str, object]:
        """What the report says about it."""
        return {"policy": self.word, **self.said}

    def limits(self, turns: int | None = None) -> Limits:
        """The run's own limits, else the usual ones; `turns` replaces theirs."""
        limits = Limits.model_validate(self.tables.get("limits", {}))
        return limits if turns is None else limits.model_copy(update={"turns": turns})

    def player(self, entry: Entry, pool: Pool, *, seed: int, temperature: float | None, limits: Limits) -> Player:
        """How it plays the environment."""
        context = resolve("context", self.tables.get("context", {"name": "full"}))
        prompt = world.words(entry)
        return Player(
            actor=self._actor(prompt, limits, temperature),
            pool=pool,
            prompt=prompt,
            context=context.module,
            context_config=context.config,
            limits=limits,
            admissible=self._admissible(),
            seed=seed,
        )

    def _admissible(self) -> bool:
        return bool(self.tables) and self.tables["engine"]["actions"] == "admissible"

    def _actor(self, prompt: Prompt, limits: Limits, temperature: float | None) -> Actor:
        if self.kind == "expert":
            return ExpertActor(self.word, prompt)
        if self.kind == "random":
            return PolicyActor(Random(prompt), None, None)
        if self.kind == "scripted":
            actions = read_actions(Path(self.word.removeprefix("scripted:")))
            return PolicyActor(Scripted([prompt.answer(action) for action in actions]), None, None)
        if self.kind == "openai":
            from agentrl.engines.openai import from_word

            endpoint = from_word(self.word, temperature=temperature, max_tokens=limits.turn_tokens)
            self.said = endpoint.describe()
            return PolicyActor(endpoint, None, None)
        return self._model(prompt, temperature)

    def _model(self, prompt: Prompt, temperature: float | None) -> Actor:
        """A model on disk: the latest checkpoint of a run with its settings, or a plain folder."""
        import torch

        from agentrl import models
        from agentrl.chat import Chat
        from agentrl.engines.hf import HfEngine
        from agentrl.engines.support import base_config
        from agentrl.runfolder import RunFolder
        from agentrl.sampling import Sampling

        run = self.kind == "run"
        path = RunFolder(Path(self.word)).latest() / "policy" if run else Path(self.word)
        sampling = Sampling.model_validate(self.tables.get("sampling", {}))
        if temperature is not None:
            sampling = sampling.model_copy(update={"temperature": temperature})
        if run and self.tables["run"]["threads"]:
            torch.set_num_threads(self.tables["run"]["threads"])
        loaded = models.load(models.ModelConfig(path=str(path)), 0)
        positions = getattr(base_config(loaded.model), "max_position_embeddings", None) or CONTEXT
        context = self.tables["engine"]["max_context"] if run else min(CONTEXT, positions)
        engine = HfEngine(
            loaded.model,
            loaded.tokenizer,
            stopping(sampling, prompt),
            max_slots=self.tables["engine"]["max_slots"] if run else 64,
            max_context=context,
            actions="admissible" if self._admissible() else "free",
            deterministic=True,
        )
        self.said = engine.describe()
        return PolicyActor(engine, Chat(loaded.tokenizer), context)
