"""A run, set up: model, engine, environments, sampler, folder. `train.py` drives it."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agentrl.chat import Chat
from agentrl.config import Entry
from agentrl.credit import signal_names
from agentrl.engines import HfEngine, Sampling, stopping
from agentrl.env import Limits, Pool, panels
from agentrl.env import hooks as world
from agentrl.evaluate import Report, evaluate
from agentrl.graph import StepGraph
from agentrl.model import Loaded, check_shape, load_model, restore_model
from agentrl.rollout import Actor, Budget, Crew, ExpertActor, PolicyActor, build_graph, collect, play, rows_of
from agentrl.run import checkpoint, vocabulary
from agentrl.run.checks import check_disjoint, leaves_report
from agentrl.run.event_loop import Loop
from agentrl.run.folder import RunFolder
from agentrl.run.metrics import Metrics, Stopwatch
from agentrl.run.progress import Progress
from agentrl.settings import Settings, wanted_columns
from agentrl.tool_env import template_fit
from agentrl.trainer import Annotator, Gold, Learner, Stream, critic_maker
from agentrl.trainer.gold_answer import FILLS
from agentrl.types import EnvFault, Task

TRAIN, CLONE, EVALUATE, VOCABULARY = range(4)  # stages of a noise key


class Run:
    """Everything a run holds. Building it reads the last checkpoint when `resume` finds one."""

    def __init__(self, settings: Settings, *, resume: bool, progress: Progress) -> None:
        tables = settings.tables
        self.settings, self.tables, self.progress = settings, tables, progress
        if tables.run.threads:
            torch.set_num_threads(tables.run.threads)
        torch.manual_seed(tables.run.seed)
        self.agents = settings.agents
        self.main = next(iter(self.agents.values()))
        self.tasks = world.tasks(settings.env)
        self.eval_tasks = panel(settings)
        check_disjoint(self.tasks, self.eval_tasks)
        self.folder = RunFolder(settings.folder, complete=lambda stored: Settings(stored).dump())
        self.folder.refuse(settings.dump(), resume=resume)
        self.loop = Loop()
        pools = {name: self._pool(agent.env, agent.limits) for name, agent in self.agents.items()}
        self.pools = [*pools.values(), self._pool(settings.eval_env, tables.limits)]
        admissible, seed = tables.engine.actions == "admissible", tables.run.seed
        self.crews = {
            where: Crew(self.agents, {**pools, self.main.name: own}, admissible=admissible, seed=seed)
            for where, own in (("train", pools[self.main.name]), ("eval", self.pools[-1]))
        }
        self.state = checkpoint.Progress()
        at = self.folder.checkpoints()[-1] if self.folder.checkpoints() else None
        self.learners = {
            name: Learner(
                self._model(at, name),
                plan.optim,
                reference=tables.update.kl_coef > 0,
                critic=critic_maker(tables.critic, plan.model, tables.run.seed),
            )
            for name, plan in settings.policies.items()
        }
        self.kept = {"stream": Stream(settings.credit.module, tables.sampling.temperature)} if streams(settings) else {}
        self.gold: dict[str, np.ndarray] = {}  # the answers to the tasks of the last batch
        self.chats = {name: Chat(learner.tokenizer) for name, learner in self.learners.items()}
        self.engines = self._engines(tables.sampling)
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
            self.folder.release()
            raise
        told = [template_fit(self.chats[agent.policy], agent.prompt).splitlines() for agent in self.agents.values()]
        notes = [*(line for lines in told for line in lines), *(one.note for one in self.learners.values())]
        for line in filter(None, (*dict.fromkeys(notes), leaves_report(settings))):
            progress.say(f"note: {line}")

    @property
    def learner(self) -> Learner:
        """The learner of the agent that tasks are given to."""
        return self.learners[self.main.policy]

    def close(self) -> None:
        """Flush and end what the run holds; a new folder without a result in it goes again."""
        self.metrics.close()
        self.folder.drop_if_nothing_came_of_it()
        self.folder.release()
        for pool in self.pools:
            pool.close()
        self.loop.close()

    def rollouts(self, iteration: int) -> tuple[StepGraph, dict[str, float]]:
        """A batch of training rollouts of the current policies."""
        player = self.crews["train"].player(self._actors(self.engines), TRAIN)
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
                reported=self.state.signals,
            )
        )
        if self.settings.reward:  # a later batch may be without one of them, such as that of a call nobody makes
            self.state.signals = sorted({*self.state.signals, *signal_names(got.graph)})
        self.state.tokens += int(got.metrics["generated_tokens"])
        self.state.calls += int(got.metrics["calls"])
        if hasattr(self.settings.env.module, "gold"):
            tasks = {record.task.key: record.task for record in got.records}
            self.gold = {key: self._gold(task) for key, task in tasks.items()}
        return got.graph, got.metrics

    @property
    def spent(self) -> float:
        """Share of `run.tokens` or `run.calls` that rollouts have used up, the larger; 0 without a limit."""
        limits = self.tables.run
        return max(self.state.tokens / (limits.tokens or math.inf), self.state.calls / (limits.calls or math.inf))

    def annotators(self) -> list[Annotator]:
        """What fills the columns that the credit method wants beyond the critic's."""
        wants_gold = set(FILLS) & set(wanted_columns(self.settings.credit.module))
        filler = getattr(self.main.context.module, "filler", None)
        return [
            *self.kept.values(),
            *([Gold(self.gold)] if wants_gold else []),
            *([filler(self.main.context.config)] if filler else []),
        ]

    def demonstrations(self, step: int) -> StepGraph:
        """A batch of fresh expert episodes."""
        context = self.tables.engine.max_context
        actors = {
            name: ExpertActor(agent.expert, agent.prompt, self.chats[agent.policy], context)
            for name, agent in self.agents.items()
        }
        tasks = self.clone_sampler.draw(self.tables.warmup.episodes)
        records = self.loop.run(play(self.crews["train"].player(actors, CLONE), tasks, iteration=step))
        return build_graph(records)

    def mine(self, graph: StepGraph, policy: str, trained: bool = True) -> np.ndarray | None:
        """[N] bool, the steps of a policy, only those that train it if `trained`; None where all are."""
        if len(self.learners) == 1 and (not trained or all(agent.trained for agent in self.agents.values())):
            return None
        return rows_of(graph, self.agents, policy, trained)

    def evaluation(self, mode: str, tasks: Sequence[Task]) -> Report:
        """The current policy on held-out tasks, each once."""
        sampling, asked = self.tables.sampling, self.tables.eval.temperature
        temperature = 0.0 if mode == "greedy" else asked or sampling.temperature
        engines = self._engines(sampling.model_copy(update={"temperature": temperature}))
        player = self.crews["eval"].player(self._actors(engines), EVALUATE)
        said = {**engines[self.main.policy].describe(), "mode": mode}
        return self.loop.run(evaluate(player, self.settings.eval_env, tasks, said))

    def sync(self, version: int) -> None:
        """Let the engines generate with the learners' weights (shared memory: only their caches are stale)."""
        for engine in self.engines.values():
            engine.clear()
            engine.version = version

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
        if self.state.stage == "train":
            for learner in self.learners.values():
                learner.total_updates = self.tables.run.iterations  # of now: a schedule ends where the run does
        self.sampler.restore(self.state.sampler)
        self.clone_sampler.restore(self.state.warmup_sampler)
        for engine in self.engines.values():
            engine.version = self.state.step if self.state.stage == "train" else 0
        if (
            self.state.stage == "train"
            and self.state.step < self.tables.run.iterations
            and self.spent < 1
            and "end" in self.state.evaluated
        ):
            self.state.evaluated.remove("end")  # a finished run was given more iterations, or a larger budget
        self.progress.say(f"going on from {at}: {self.state.stage} step {self.state.step}")

    def _gold(self, task: Task) -> np.ndarray:
        """[T] ids of the task's answer in the environment's format, without an end token."""
        return self.chats[self.main.policy].encode(self.main.prompt.answer(self.settings.env.module.gold(task)))

    async def _try_expert(self) -> None:
        """One move of the demonstrator, so that a mistake in its words is told before anything is written."""
        handle = self.pools[0].acquire()
        broken = True
        try:
            await handle.reset(self.tasks[0])
            await handle.act(self.tables.warmup.expert, 0)
            broken = False
        except EnvFault:  # a rollout tries again, and reports what persists
            pass
        finally:
            self.pools[0].release(handle, broken=broken)

    def _pool(self, entry: Entry, limits: Limits) -> Pool:
        return world.pool_within(entry, limits, self.tables.pool.kind, self.tables.pool.workers)

    def _engines(self, sampling: Sampling) -> dict[str, HfEngine]:
        """An engine for each policy."""
        tables = self.tables
        engines = {}
        for name, learner in self.learners.items():
            prompts = [agent.prompt for agent in self.agents.values() if agent.policy == name]
            engines[name] = HfEngine(
                learner.model,
                learner.tokenizer,
                stopping(sampling, *prompts),
                max_slots=tables.engine.max_slots,
                max_context=tables.engine.max_context,
                actions=tables.engine.actions,
                deterministic=tables.run.deterministic,
                entropies=getattr(self.settings.rollout.module, "ENTROPY", False),
            )
        return engines

    def _actors(self, engines: Mapping[str, HfEngine]) -> dict[str, Actor]:
        """Who answers for each agent."""
        context = self.tables.engine.max_context
        return {
            name: PolicyActor(engines[agent.policy], self.chats[agent.policy], context)
            for name, agent in self.agents.items()
        }

    def _model(self, at: Path | None, policy: str) -> Loaded:
        """The model of the last checkpoint, or a new one with a vocabulary from its agents' environments' own words."""
        config, seed = self.settings.policies[policy].model, self.tables.run.seed
        if at is not None and config.lora is None:
            stored = load_model(config.model_copy(update={"path": str(at / policy), "new": None}), seed)
            if config.new is not None:
                check_shape(stored.model, config.new, at)
            return stored
        vocabulary = self._vocabulary(policy) if config.new is not None else {}
        loaded = load_model(config, seed, **vocabulary)
        if at is not None:
            restore_model(loaded, at / policy)
        return loaded

    def _vocabulary(self, policy: str) -> dict[str, Sequence[str]]:
        """Texts of some expert episodes of a policy's agents, and the entity names that their environments list."""
        actors = {name: ExpertActor(agent.expert, agent.prompt) for name, agent in self.agents.items()}
        count = min(200, len(self.tasks))
        sampler = self.settings.sampler.module.make(self.settings.sampler.config, self.tasks, self.tables.run.seed + 2)
        records = self.loop.run(play(self.crews["train"].player(actors, VOCABULARY), sampler.draw(count)))
        mine = {name: agent for name, agent in self.agents.items() if agent.policy == policy}
        texts: list[str] = []
        for chain in (chain for record in records for chain in record.chains() if chain.agent in mine):
            words = mine[chain.agent].prompt
            for turn, step in enumerate(chain.steps):
                seen = step.observation
                texts += [
                    words.turn(seen) if turn else vocabulary.opening(words, seen),
                    *map(words.answer, step.observation.actions),
                    step.generation.text,
                ]
        entities = [
            name
            for a in mine.values()
            if hasattr(a.env.module, "entities")
            for name in a.env.module.entities(a.env.config)
        ]
        for agent in mine.values():
            texts += agent.context.module.words(agent.context.config) if hasattr(agent.context.module, "words") else ()
        new = self.settings.policies[policy].model.new
        known = sorted({*texts, *(f" {name}" for name in entities)})
        return {"texts": known, "entities": list(dict.fromkeys(entities)) if new and new.entity_pattern else []}


def streams(settings: Settings) -> bool:
    """Does the credit method keep a value of each prompt from one iteration to the next?"""
    return hasattr(settings.credit.module, "Tracker")


def panel(settings: Settings) -> list[Task]:
    """The held-out tasks of a run: the keys of its panel file, or the first tasks of the evaluation environment."""
    chosen = settings.tables.eval
    if chosen.panel is not None:
        return panels.panel(settings.eval_env, panels.read_panel(Path(chosen.panel)))
    tasks = world.tasks(settings.eval_env)
    return [tasks[i] for i in range(min(chosen.tasks, len(tasks)))]
