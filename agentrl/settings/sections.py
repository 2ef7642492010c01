"""Every section of a recipe, as typed tables."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from agentrl.engines import Sampling
from agentrl.env import Limits
from agentrl.model.sections import ModelConfig
from agentrl.scoring.sections import ScoringConfig
from agentrl.trainer.sections import CriticConfig, LearnerConfig, OptimConfig, UpdateConfig

MANY = 1_000_000  # largest number of episodes at once; a larger number is a mistake that would fill the memory


class Section(BaseModel, frozen=True, extra="forbid"):
    """A table of the TOML file."""


class RunSection(Section):
    """Section [run]: the name, the folder and the length of the run.

    Attributes:
        name: name of the run and of its folder; default: the name of the recipe's file.
        folder: the folder in which the run's folder is stored.
        seed: seed of everything random. With `deterministic`, the same seed gives the same bytes.
        iterations: number of iterations, each with one update.
        deterministic: batches of the engine do not depend on timing, so that a run can be repeated byte for byte.
        threads: number of torch threads, 0 for torch's own choice.
        checkpoint_every: number of iterations (in the warm-up: updates) between two checkpoints. 0 writes them only
            before the first iteration and at the end.
        keep: number of checkpoints to keep.
        graphs_every: iterations between two stored step graphs, 0 for never.
        tokens: training ends after the iteration in which the total of sampled tokens reaches this number.
        actions: training ends after the iteration in which the total of carried-out actions reaches this number.
        staleness: largest age of a group, in updates: the weights that sampled its first tokens may be this many
            updates older than the weights that it trains. 0 plays and updates alternately. See docs/overlap.md.
        ahead: number of batches that are played ahead of the updates; at most `staleness`, which is also the default.
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
    actions: int | None = Field(None, ge=1)
    staleness: int = Field(0, ge=0, le=64)
    ahead: int | None = Field(None, ge=0)

    @property
    def lead(self) -> int:
        """Batches that are played ahead of the updates."""
        return self.staleness if self.ahead is None else self.ahead

    @model_validator(mode="after")
    def _ahead_is_bounded(self) -> "RunSection":
        if self.lead > self.staleness:
            raise ValueError(
                f"ahead is {self.ahead}, and rollouts may be {self.staleness} updates old: raise staleness, or lower "
                "ahead"
            )
        return self

    @field_validator("name")
    @classmethod
    def _one_folder(cls, name: str) -> str:
        if name != Path(name).name or name in ("", ".", "..") or {*name} & {"\0", "\\", "\n"}:
            raise ValueError("a run's name is the name of one folder; run.folder names the folder above it")
        return name


class BatchSection(Section):
    """Section [batch]: how much is played per iteration.

    Attributes:
        tasks: groups per iteration.
        copies: chains per group, as the rollout method counts them. `rollout.name=tree` does not use this option: its
            own options are `trees` and `leaves`.
        tokens: budget of sampled tokens per batch. The number of groups, at least one, is estimated from the mean cost
            per group so far, so a batch can cost more than the budget. Shared steps count once; filtered and pruned
            rollouts count.
        actions: budget of carried-out actions per batch, which works like the budget of tokens.
    """

    tasks: int = Field(16, ge=1, le=MANY)
    copies: int = Field(8, ge=1, le=MANY)
    tokens: int | None = Field(None, ge=1)
    actions: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _countable(self) -> "BatchSection":
        if self.tasks * self.copies > MANY:
            raise ValueError(f"tasks x copies is {self.tasks * self.copies} rollouts per iteration, at most {MANY}")
        return self


class WarmupSection(Section):
    """Section [warmup]: behaviour cloning before the first iteration.

    Attributes:
        expert: the expert whose episodes are cloned: a name that the environment knows, or `random`, which takes random
            actions in any environment with listed actions or tools.
        clone: the episodes of the expert that are cloned. `all` clones all. `best`, for an expert that wins only by
            chance, clones the episodes of each batch that succeed. If no episode of a batch succeeds, `best` clones
            about a tenth of the batch, the episodes with the highest returns, or nothing if all returns are equal.
        updates: number of batches to clone, each in one update; 0 for no warm-up.
        episodes: number of newly played episodes per batch.
        minibatches: optimiser steps per batch.
        optim: options of this stage that differ from [optim].
    """

    expert: str = "expert"
    clone: Literal["all", "best"] = "all"
    updates: int = Field(0, ge=0)
    episodes: int = Field(32, ge=1, le=MANY)
    minibatches: int = Field(1, ge=1)
    optim: dict[str, Any] = Field(default_factory=dict)


class EvalSection(Section):
    """Section [eval]: held-out evaluation.

    Attributes:
        every: iterations between two evaluations; 0 evaluates only before the warm-up, after it and at the end.
        tasks: number of held-out tasks, the first tasks of the evaluation's environment.
        during: number of held-out tasks that the evaluations during training play (those that `every` asks for). The
            evaluations before the warm-up, after the warm-up and at the end play all held-out tasks.
        panel: a file with the keys of the held-out tasks; `tasks` then has no effect. Without a file, the held-out
            tasks are the first `tasks` tasks of the evaluation's environment.
        modes: greedy, sampled or both.
        temperature: temperature of the sampled mode; default: the temperature of training.
        env: options of the evaluation's environment that differ from [env].
    """

    every: int = Field(0, ge=0)
    tasks: int = Field(200, ge=1, le=MANY)
    during: int = Field(64, ge=1)
    panel: str | None = None
    modes: tuple[Literal["greedy", "sampled"], ...] = ("greedy", "sampled")
    temperature: float | None = Field(None, gt=0)
    env: dict[str, Any] = Field(default_factory=dict)


class LogSection(Section):
    """Section [log]: the outputs of a run beside its metrics file.

    Attributes:
        to: trackers that get every line of metrics: `tensorboard`, `trackio`, `wandb` (extras of the same names), or
            the dotted path of a module of your own. If a tracker fails, the run goes on.
        options: options of trackers by name, such as `log.options.wandb.project`.
        tensorboard: has the same effect as `tensorboard` in `to`.
        picture: draw the learning curve, learning_curve.svg.
        report: write report.html when the run ends, as `agentrl report` does.
        entropies: store the entropy of each answer, in nats, with the steps (column `entropy`).
        durations: store the wall-clock seconds of each answer and environment step (columns `answer_s`, `env_s`). The
            stored steps then differ in every run.
    """

    to: tuple[str, ...] = ()
    options: dict[str, dict[str, Any]] = Field(default_factory=dict)
    tensorboard: bool = False
    picture: bool = False
    report: bool = True
    entropies: bool = False
    durations: bool = False


class PoolSection(Section):
    """Section [pool]: where environments run.

    Attributes:
        kind: `processes` runs environments in worker processes, `threads` in threads, and `inline` in the main thread
            of this process. `auto` takes processes for environments that need much computation or memory, threads for
            environments whose steps wait (for a network or a program), and inline for all other environments.
        workers: number of processes, 0 for one per core.
    """

    kind: Literal["auto", "inline", "threads", "processes"] = "auto"
    workers: int = Field(0, ge=0)


class ClusterSection(Section):
    """Section [cluster]: workers, engines and learners on a Ray cluster (extra `ray`); see docs/scaling.md. With
    `learner.processes` above 1, the processes of the learner are actors of the cluster.

    Attributes:
        address: empty for no cluster; `local` starts a cluster on this machine; `auto`, or the address of a head node,
            joins a running cluster.
        workers: number of processes that play, each with its own environments and, without `engines`, with its own
            embedded engine. 0 lets this process play, which engine.name=vllm needs.
        engines: number of processes that generate for all workers, each with an embedded engine or a vLLM server (in
            place of engine.servers on this machine); Ray chooses their GPUs. 0 lets each worker generate for itself;
            without workers, the engine is then on this machine.
    """

    address: str = ""
    workers: int = Field(2, ge=0, le=4096)
    engines: int = Field(0, ge=0, le=1024)


class Tables(Section):
    """Every section of the file. A section that names a catalogue entry also holds the options of that entry, which the
    entry checks."""

    run: RunSection = RunSection()
    env: dict[str, Any]
    eval: EvalSection = EvalSection()
    model: ModelConfig
    engine: dict[str, Any] = Field(default_factory=lambda: {"name": "hf"})
    sampling: Sampling = Sampling()
    context: dict[str, Any] = Field(default_factory=lambda: {"name": "full"})
    limits: Limits = Limits()
    pool: PoolSection = PoolSection()
    batch: BatchSection = BatchSection()
    sampler: dict[str, Any] = Field(default_factory=lambda: {"name": "uniform"})
    guide: dict[str, Any] = Field(default_factory=dict)
    replay: dict[str, Any] = Field(default_factory=dict)
    rollout: dict[str, Any] = Field(default_factory=lambda: {"name": "chain"})
    warmup: WarmupSection = WarmupSection()
    score: dict[str, Any] | list[dict[str, Any]] = Field(default_factory=dict)
    scoring: ScoringConfig = ScoringConfig()
    reward: dict[str, Any] | list[dict[str, Any]] = Field(default_factory=dict)
    credit: dict[str, Any] = Field(default_factory=lambda: {"name": "gigpo"})
    loss: dict[str, Any] = Field(default_factory=lambda: {"name": "ppo_clip"})
    update: UpdateConfig = UpdateConfig()
    critic: CriticConfig = CriticConfig()
    optim: OptimConfig = OptimConfig()
    learner: LearnerConfig = LearnerConfig()
    agents: dict[str, dict[str, Any]] = Field(default_factory=dict)
    log: LogSection = LogSection()
    cluster: ClusterSection = ClusterSection()
