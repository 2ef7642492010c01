"""A run, set up: model, engine, environments, sampler, folder. `train.py` drives it."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agentrl import checkpoint, critic, models, needs, word_tokenizer, world
from agentrl.annotate import Annotator
from agentrl.chat import Chat, template_report
from agentrl.collect import Budget, collect
from agentrl.config import Entry
from agentrl.engines.hf import HfEngine
from agentrl.evaluate import Report, evaluate
from agentrl.gold import FILLS, Gold
from agentrl.graph import StepGraph
from agentrl.learner import Learner
from agentrl.loop import Loop
from agentrl.metrics import Metrics, Stopwatch
from agentrl.policies import ExpertActor
from agentrl.pool import EnvFault, Pool
from agentrl.progress import Progress
from agentrl.prompt import stopping
from agentrl.records import build_graph
from agentrl.rollout import Actor, Player, PolicyActor, play
from agentrl.runfolder import RunFolder
from agentrl.sampler import ENDLESS
from agentrl.sampling import Sampling
from agentrl.settings import Settings
from agentrl.stream import Stream
from agentrl.types import Task

POLICY = "policy"  # the learner of a run with one agent
TRAIN, CLONE, EVALUATE, VOCABULARY = range(4)  # stages of a noise key


class Run:
    """Everything a run holds. Building it reads the last checkpoint when `resume` finds one."""

    def __init__(self, settings: Settings, *, resume: bool, progress: Progress) -> None:
        tables = settings.tables
        self.settings, self.tables, self.progress = settings, tables, progress
        if tables.run.threads:
            torch.set_num_threads(tables.run.threads)
        torch.manual_seed(tables.run.seed)
        self.prompt = world.words(settings.env)
        self.tasks = world.tasks(settings.env)
        self.eval_tasks = panel(settings)
        check_disjoint(self.tasks, self.eval_tasks)
        self.folder = RunFolder(settings.folder, complete=lambda stored: Settings(stored).dump())
        self.folder.refuse(settings.dump(), resume=resume)
        self.loop = Loop()
        self.pools = {name: self._pool(entry) for name, entry in (("train", settings.env), ("eval", settings.eval_env))}
        self.state = checkpoint.Progress()
        at = self.folder.checkpoints()[-1] if self.folder.checkpoints() else None
        self.learners = {
            POLICY: Learner(
                self._model(at),
                tables.optim,
                reference=tables.update.kl_coef > 0,
                critic=critic.maker(tables.critic, tables.model, tables.run.seed),
            )
        }
        self.kept = {"stream": Stream(settings.credit.module, tables.sampling.temperature)} if streams(settings) else {}
        self.gold: dict[str, np.ndarray] = {}  # the answers to the tasks of the last batch
        self.chat = Chat(self.learner.tokenizer)
        self.engine = self._engine(tables.sampling)
        if tables.warmup.updates:
            self.loop.run(self._try_expert())
        self.sampler = settings.sampler.module.make(settings.sampler.config, self.tasks, tables.run.seed)
        self.clone_sampler = settings.sampler.module.make(settings.sampler.config, self.tasks, tables.run.seed + 1)
        try:
            self.folder.open(settings.dump(), resume=resume)
            if at is not None:
                self._go_on_from(at)
            self.folder.rewind(self.state.metric_lines, self.state.timing_lines)
            self.metrics = Metrics(self.folder, tensorboard=tables.log.tensorboard)
        except BaseException:
            self.folder.drop_if_nothing_came_of_it()
            raise
        for line in filter(None, (template_report(self.chat), self.learner.note, leaves_report(settings))):
            progress.say(f"note: {line}")

    @property
    def learner(self) -> Learner:
        """The learner of the only policy."""
        return self.learners[POLICY]

    def close(self) -> None:
        """Flush and end what the run holds; a new folder without a result in it goes again."""
        self.metrics.close()
        self.folder.drop_if_nothing_came_of_it()
        for pool in self.pools.values():
            pool.close()
        self.loop.close()

    def rollouts(self, iteration: int) -> tuple[StepGraph, dict[str, float]]:
        """A batch of training rollouts of the current policy."""
        player = self.player(PolicyActor(self.engine, self.chat, self.tables.engine.max_context), "train", TRAIN)
        batch = self.tables.batch
        got = self.loop.run(
            collect(
                player,
                self.sampler,
                self.settings.sampler,
                tasks=batch.tasks,
                copies=batch.copies,
                iteration=iteration,
                rollout=self.settings.rollout,
                budget=Budget(batch.tokens, batch.calls),
                rewards=self.settings.reward,
            )
        )
        self.state.tokens += int(got.metrics["generated_tokens"])
        self.state.calls += int(got.metrics["calls"])
        if hasattr(self.settings.env.module, "gold"):
            tasks = {record.task.key: record.task for record in got.records}
            self.gold = {key: self._gold(task) for key, task in tasks.items()}
        return got.graph, got.metrics

    @property
    def spent(self) -> bool:
        """Have the rollouts used up `run.tokens` or `run.calls`?"""
        limits = self.tables.run
        return self.state.tokens >= (limits.tokens or math.inf) or self.state.calls >= (limits.calls or math.inf)

    def annotators(self) -> list[Annotator]:
        """What fills the columns that the credit method wants beyond the critic's."""
        wants_gold = set(FILLS) & set(needs.wanted(self.settings.credit.module))
        return [*self.kept.values(), *([Gold(self.gold)] if wants_gold else [])]

    def demonstrations(self, step: int) -> StepGraph:
        """A batch of fresh expert episodes."""
        warmup = self.tables.warmup
        actor = ExpertActor(warmup.expert, self.prompt, self.chat, self.tables.engine.max_context)
        tasks = self.clone_sampler.draw(warmup.episodes)
        records = self.loop.run(play(self.player(actor, "train", CLONE), tasks, iteration=step))
        return build_graph(records)

    def evaluation(self, mode: str, tasks: Sequence[Task]) -> Report:
        """The current policy on held-out tasks, each once."""
        sampling, asked = self.tables.sampling, self.tables.eval.temperature
        temperature = 0.0 if mode == "greedy" else asked or sampling.temperature
        engine = self._engine(sampling.model_copy(update={"temperature": temperature}))
        player = self.player(PolicyActor(engine, self.chat, self.tables.engine.max_context), "eval", EVALUATE)
        return self.loop.run(evaluate(player, self.settings.eval_env, tasks, {**engine.describe(), "mode": mode}))

    def player(self, actor: Actor, pool: str, stage: int) -> Player:
        """How episodes of this run are played."""
        return Player(
            actor=actor,
            pool=self.pools[pool],
            prompt=self.prompt,
            context=self.settings.context.module,
            context_config=self.settings.context.config,
            limits=self.tables.limits,
            admissible=self.tables.engine.actions == "admissible",
            seed=self.tables.run.seed,
            stage=stage,
        )

    def sync(self, version: int) -> None:
        """Let the engine generate with the learner's weights (shared memory: only its cache is stale)."""
        self.engine.clear()
        self.engine.version = version

    def save(self) -> None:
        """Write a checkpoint of the run as it stands now: `clone-STEP` in the warm-up, then the number of updates."""
        name = f"{self.state.step:06d}" if self.state.stage == "train" else f"clone-{self.state.step:06d}"
        self.state.sampler, self.state.warmup_sampler = self.sampler.state(), self.clone_sampler.state()
        self.state.metric_lines, self.state.timing_lines = self.metrics.lines, self.metrics.timing_lines
        checkpoint.write(self.folder, name, self.learners, self.state, self.tables.run.keep, self.kept)

    def log(self, stage: str, step: int, values: Mapping[str, Any], watch: Stopwatch) -> None:
        """One line of metrics and one of timings."""
        self.metrics.log(stage, step, values)
        self.metrics.time(stage, step, watch.seconds)

    def _go_on_from(self, at: Path) -> None:
        self.state = checkpoint.read_progress(at)
        checkpoint.restore(at, self.learners, self.kept)
        self.sampler.restore(self.state.sampler)
        self.clone_sampler.restore(self.state.warmup_sampler)
        self.engine.version = self.state.step if self.state.stage == "train" else 0
        if (
            self.state.stage == "train"
            and self.state.step < self.tables.run.iterations
            and not self.spent
            and "end" in self.state.evaluated
        ):
            self.state.evaluated.remove("end")  # a finished run was given more iterations, or a larger budget
        self.progress.say(f"going on from {at}: {self.state.stage} step {self.state.step}")

    def _gold(self, task: Task) -> np.ndarray:
        """[T] ids of the task's answer in the environment's format, without an end token."""
        return self.chat.encode(self.prompt.answer(self.settings.env.module.gold(task)))

    async def _try_expert(self) -> None:
        """One move of the demonstrator, so that a mistake in its words is told before anything is written."""
        handle = self.pools["train"].acquire()
        broken = True
        try:
            await handle.reset(self.tasks[0])
            await handle.act(self.tables.warmup.expert, 0)
            broken = False
        except EnvFault:  # a rollout tries again, and reports what persists
            pass
        finally:
            self.pools["train"].release(handle, broken=broken)

    def _pool(self, entry: Entry) -> Pool:
        tables, limits = self.tables, self.tables.limits
        return world.pool(
            entry,
            tables.pool.kind,
            tables.pool.workers,
            limits.call_seconds,
            limits.start_seconds,
            limits.output_chars,
        )

    def _engine(self, sampling: Sampling) -> HfEngine:
        tables = self.tables
        return HfEngine(
            self.learner.model,
            self.learner.tokenizer,
            stopping(sampling, self.prompt),
            max_slots=tables.engine.max_slots,
            max_context=tables.engine.max_context,
            actions=tables.engine.actions,
            deterministic=tables.run.deterministic,
            entropies=getattr(self.settings.rollout.module, "ENTROPY", False),
        )

    def _model(self, at: Path | None) -> models.Loaded:
        """The model of the last checkpoint, or a new one with a vocabulary from the environment's own words."""
        config, seed = self.tables.model, self.tables.run.seed
        if at is not None and config.lora is None:
            stored = models.load(config.model_copy(update={"path": str(at / POLICY), "new": None}), seed)
            if config.new is not None:
                models.check_shape(stored.model, config.new, at)
            return stored
        vocabulary = self._vocabulary() if config.new is not None else {}
        loaded = models.load(config, seed, **vocabulary)
        if at is not None:
            models.restore(loaded, at / POLICY)
        return loaded

    def _vocabulary(self) -> dict[str, Sequence[str]]:
        """Texts of some expert episodes, and the entity names that the environment lists."""
        module, config = self.settings.env.module, self.settings.env.config
        actor = ExpertActor(self.tables.warmup.expert, self.prompt)
        count = min(200, len(self.tasks))
        sampler = self.settings.sampler.module.make(self.settings.sampler.config, self.tasks, self.tables.run.seed + 2)
        records = self.loop.run(play(self.player(actor, "train", VOCABULARY), sampler.draw(count)))
        texts: list[str] = []
        for record in records:
            for turn, step in enumerate(record.steps):
                seen = step.observation
                texts += [
                    self.prompt.turn(seen) if turn else word_tokenizer.opening(self.prompt, seen),
                    *map(self.prompt.answer, step.observation.actions),
                    step.generation.text,
                ]
        entities = list(module.entities(config)) if hasattr(module, "entities") else []
        whole = self.tables.model.new is not None and bool(self.tables.model.new.entity_pattern)
        known = sorted({*texts, *(f" {name}" for name in entities)})
        return {"texts": known, "entities": entities if whole else []}


def leaves_report(settings: Settings) -> str:
    """How many episodes a task gets, where the rollout method does not take it from batch.copies; empty if it does."""
    copies = settings.tables.batch.copies
    leaves = settings.rollout.module.leaves(settings.rollout.config, copies)
    if leaves == copies:
        return ""
    return f"rollout.name={settings.rollout.name} scores {leaves} episodes a task; batch.copies={copies} is not used"


def streams(settings: Settings) -> bool:
    """Does the credit method keep a value of each prompt from one iteration to the next?"""
    return hasattr(settings.credit.module, "Tracker")


def panel(settings: Settings) -> list[Task]:
    """The held-out tasks of a run: the keys of its panel file, or the first tasks of the evaluation environment."""
    chosen = settings.tables.eval
    if chosen.panel is not None:
        return world.panel(settings.eval_env, world.read_panel(Path(chosen.panel)))
    tasks = world.tasks(settings.eval_env)
    return [tasks[i] for i in range(min(chosen.tasks, len(tasks)))]


def check_disjoint(train: Sequence[Task], held_out: Sequence[Task]) -> None:
    """Raises ValueError if a held-out task is among the training tasks (lists without end are not searched)."""
    if len(train) > ENDLESS:
        return
    both = {task.key for task in held_out} & {train[i].key for i in range(len(train))}
    if both:
        raise ValueError(
            f"{len(both)} evaluation tasks are training tasks too, such as {sorted(both)[0]}: "
            "set eval.env to another split"
        )
