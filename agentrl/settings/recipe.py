"""The sections of a run's configuration, and the run they resolve to."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from agentrl.config import Entry, merge, override, read_toml, resolve, validate
from agentrl.credit import rewards
from agentrl.engines.sampling import Sampling
from agentrl.env import hooks as world
from agentrl.env.limits import Limits
from agentrl.model.load import ModelConfig
from agentrl.rollout import agents
from agentrl.settings import requirements as needs
from agentrl.trainer.critic import CriticConfig
from agentrl.trainer.learner import OptimConfig
from agentrl.trainer.update import UpdateConfig


class Section(BaseModel, frozen=True, extra="forbid"):
    """A table of the TOML file."""


MANY = 1_000_000  # episodes; more at once is a slip of the keyboard that would fill the memory


class RunSection(Section):
    """name and folder: where the run is stored. iterations: updates on fresh rollouts. threads: of torch, 0 leaves
    torch's own choice. checkpoint_every, graphs_every: iterations between files, 0 for never. keep: checkpoints kept.
    tokens, calls: training ends with the iteration in which rollouts have sampled so many tokens, or carried out so
    many actions, in all.
    """

    name: str = Field("run", max_length=200)
    folder: str = Field("runs", min_length=1)
    seed: int = Field(0, ge=0, le=2**62)
    iterations: int = Field(100, ge=0)
    deterministic: bool = True
    threads: int = Field(1, ge=0)
    checkpoint_every: int = Field(10, ge=0)
    keep: int = Field(2, ge=1)
    graphs_every: int = Field(1, ge=0)
    tokens: int | None = Field(None, ge=1)
    calls: int | None = Field(None, ge=1)

    @field_validator("name")
    @classmethod
    def _one_folder(cls, name: str) -> str:
        if name != Path(name).name or name in ("", ".", "..") or {*name} & {"\0", "\\", "\n"}:
            raise ValueError("a run's name is the name of one folder; where it lies is run.folder")
        return name


class EngineSection(Section):
    """max_slots: sequences whose KV cache is kept. max_context: tokens a sequence may have. actions: free text, or
    restricted to the admissible actions by a token trie (the masked distribution is the behaviour distribution)."""

    name: Literal["hf"] = "hf"
    max_slots: int = Field(256, ge=1)
    max_context: int = Field(1024, ge=8)
    actions: Literal["free", "admissible"] = "free"


class BatchSection(Section):
    """tasks: groups an iteration. copies: chains a group, as [rollout] takes them (`tree` counts its own roots).

    tokens, calls: fewer groups, one at least, where more would sample more tokens or carry out more actions than that,
    judged by what groups have cost so far. Shared steps cost once; what is filtered out or pruned has cost too.
    """

    tasks: int = Field(16, ge=1, le=MANY)
    copies: int = Field(8, ge=1, le=MANY)
    tokens: int | None = Field(None, ge=1)
    calls: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _countable(self) -> "BatchSection":
        if self.tasks * self.copies > MANY:
            raise ValueError(f"tasks x copies is {self.tasks * self.copies} rollouts an iteration, at most {MANY}")
        return self


class WarmupSection(Section):
    """Behaviour cloning before the first iteration: `updates` batches of `episodes` fresh episodes of an expert.

    optim: options of this stage that differ from [optim]. minibatches: optimiser steps a batch.
    """

    expert: str = "expert"
    updates: int = Field(0, ge=0)
    episodes: int = Field(32, ge=1, le=MANY)
    minibatches: int = Field(1, ge=1)
    optim: dict[str, Any] = Field(default_factory=dict)


class EvalSection(Section):
    """Held-out evaluation. every: iterations between (0: only before, after the warm-up and at the end).

    tasks: how many of the environment's tasks under `env` (options that replace those of [env]); panel: a file of task
    keys instead. modes: greedy and/or sampled; temperature: of the sampled mode, default that of training. during:
    tasks used for evaluations in between.
    """

    every: int = Field(0, ge=0)
    tasks: int = Field(200, ge=1, le=MANY)
    during: int = Field(64, ge=1)
    panel: str | None = None
    modes: tuple[Literal["greedy", "sampled"], ...] = ("greedy", "sampled")
    temperature: float | None = Field(None, gt=0)
    env: dict[str, Any] = Field(default_factory=dict)


class LogSection(Section):
    """tensorboard: also write TensorBoard events (extra `tensorboard`). picture: draw the curve (extra `report`)."""

    tensorboard: bool = False
    picture: bool = False


class PoolSection(Section):
    """kind: where environments run; auto takes worker processes for heavy ones and threads for those that wait.
    workers: processes, 0 for one a core."""

    kind: Literal["auto", "inline", "threads", "processes"] = "auto"
    workers: int = Field(0, ge=0)


class Tables(Section):
    """Every section of the file. Those that name a catalogue entry hold its options too, checked by the entry."""

    run: RunSection = RunSection()
    env: dict[str, Any]
    eval: EvalSection = EvalSection()
    model: ModelConfig
    engine: EngineSection = EngineSection()
    sampling: Sampling = Sampling()
    context: dict[str, Any] = Field(default_factory=lambda: {"name": "full"})
    limits: Limits = Limits()
    pool: PoolSection = PoolSection()
    batch: BatchSection = BatchSection()
    sampler: dict[str, Any] = Field(default_factory=lambda: {"name": "uniform"})
    rollout: dict[str, Any] = Field(default_factory=lambda: {"name": "chain"})
    warmup: WarmupSection = WarmupSection()
    reward: dict[str, Any] | list[dict[str, Any]] = Field(default_factory=dict)
    credit: dict[str, Any] = Field(default_factory=lambda: {"name": "gigpo"})
    loss: dict[str, Any] = Field(default_factory=lambda: {"name": "ppo_clip"})
    update: UpdateConfig = UpdateConfig()
    critic: CriticConfig = CriticConfig()
    optim: OptimConfig = OptimConfig()
    agents: dict[str, dict[str, Any]] = Field(default_factory=dict)
    log: LogSection = LogSection()


class Settings:
    """A resolved configuration: typed sections, and the catalogue entries that six of them name."""

    def __init__(self, tables: Mapping[str, Any]) -> None:
        """Raises ValueError naming the key, the value and the nearest valid key."""
        self.tables = validate(Tables, tables)
        self.env: Entry = resolve("envs", self.tables.env, "env")
        self.eval_env: Entry = resolve("envs", merge(self.tables.env, self.tables.eval.env), "eval.env")
        self.context: Entry = resolve("context", self.tables.context)
        self.sampler: Entry = resolve("sampler", self.tables.sampler)
        self.rollout: Entry = resolve("rollout", self.tables.rollout)
        self.reward: tuple[Entry, ...] = rewards.transforms(self.tables.reward)
        self.credit: Entry = resolve("credit", self.tables.credit)
        self.loss: Entry = resolve("loss", self.tables.loss)
        self.clone_optim: OptimConfig = validate(
            OptimConfig, merge(self.tables.optim.model_dump(), self.tables.warmup.optim), "warmup.optim"
        )
        self.sections = agents.sections(self.env, self.tables.agents)
        self.agents = agents.team(self.env, self.context, self.tables.limits, self.tables.warmup.expert, self.sections)
        self.policies = agents.plans(self.sections, self.tables.model, self.tables.optim, self.clone_optim)
        self._check_stages()

    def _check_stages(self) -> None:
        """What no section can tell of itself."""
        tables = self.tables
        if tables.run.iterations and not tables.sampling.temperature:
            raise ValueError(
                "sampling.temperature = 0: greedy rollouts of a task are all the same, so there is nothing to learn "
                "from; set it above 0 (eval.modes=['greedy'] evaluates greedily), or run.iterations=0"
            )
        if tables.warmup.updates or tables.model.new is not None:
            for name, agent in self.agents.items():
                where = f"agents.{name}.expert" if name in self.sections and name != agents.MAIN else "warmup.expert"
                world.check_expert(agent.env, agent.expert, where)
        if not any(agent.trained for agent in self.agents.values()):
            raise ValueError("no agent is trained: set trained=true for one of [agents]")
        if tables.run.iterations:
            fillers = (self.env.module, self.rollout.module, self.context.module)
            needs.check(self.credit.module, tables.critic, *fillers)
            needs.check_agents(self.credit.module, len(self.agents))
            self._check_rollout()

    def _check_rollout(self) -> None:
        """What the rollout method and other sections must agree on."""
        tables, fills, name = self.tables, getattr(self.rollout.module, "FILLS", ()), self.rollout.name
        episodes = tables.batch.tasks * self.rollout.module.leaves(self.rollout.config, tables.batch.copies)
        if episodes > MANY:
            raise ValueError(f"rollout.name={name} makes {episodes} episodes an iteration, at most {MANY}")
        if "value" in fills and tables.critic.model != "none":
            raise ValueError(
                f"rollout.name={name} fills the column 'value', and so does the critic: choose one of them"
            )
        if "tree" not in fills:
            return
        if getattr(self.credit.module, "ON", "chains") == "tokens" or getattr(self.credit.config, "per_token", False):
            raise ValueError(
                f"credit.name={self.credit.name} gives credit per token, and the steps of rollout.name={name} branch: "
                "choose a credit method that works per step, or rollout.name=chain"
            )

    @classmethod
    def load(cls, recipe: Path, overrides: Sequence[str] = ()) -> "Settings":
        """A recipe with overrides; the run is named after the file unless it names itself."""
        tables = merge({"run": {"name": recipe.stem}}, read_toml(recipe))
        try:
            return cls(override(tables, overrides))
        except ValueError as error:
            raise ValueError(f"{error}{_left_over(str(error), tables, overrides)}") from None

    @property
    def folder(self) -> Path:
        """Where the run is stored."""
        return Path(self.tables.run.folder) / self.tables.run.name

    def dump(self) -> dict[str, Any]:
        """Every section with every default written out, as plain TOML values (None left out)."""
        values = self.tables.model_dump(mode="json")
        for name in ("env", "context", "sampler", "rollout", "credit", "loss"):
            entry: Entry = getattr(self, name)
            values[name] = entry.dump()
        values["agents"] = {name: section.model_dump(mode="json") for name, section in self.sections.items()}
        reward = [entry.dump() for entry in self.reward]
        values["reward"] = reward if isinstance(self.tables.reward, list) else dict(*reward)
        plain: dict[str, Any] = _without_none(values)
        return plain


def _left_over(told: str, tables: Mapping[str, Any], overrides: Sequence[str]) -> str:
    """What to do when an override names another entry and the recipe's options of the old one are in its way."""
    for text in overrides:
        key, _, name = text.partition("=")
        section = key.strip().removesuffix(".name")
        old = tables.get(section)
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
