"""What rolls out: agents, environments, engines and samplers, built from settings and tokenizers alone.

Half of a run; the other half is `agentrl.run.Policies`. Between them cross the step graph one way, and `Weights` with a
version the other way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from agentrl.chat import Chat
from agentrl.config import Entry
from agentrl.credit import signal_names
from agentrl.engines import Sampling, Serving, stopping
from agentrl.env import EnvironmentFile, Limits, Pool, panel_tasks, pool_within, read_panel, tasks_of
from agentrl.evaluate import Report, evaluate
from agentrl.graph import StepGraph
from agentrl.model import Weights
from agentrl.rollout import (
    Actor,
    Budget,
    Collected,
    Crew,
    EpisodeRecord,
    ExpertActor,
    Player,
    PolicyActor,
    Provision,
    Wanted,
    build_graph,
    collect,
    expert_actor,
    groups_to_begin,
    play,
)
from agentrl.run.checks import check_disjoint
from agentrl.run.event_loop import Loop
from agentrl.run.stages import CLONE, EVALUATE, TRAIN
from agentrl.settings import Settings
from agentrl.types import EnvFault, Request, Task

OnEpisode = Callable[[EpisodeRecord], None] | None
BEST = 10  # one episode of so many is cloned if none was won
UNKNOWN = 0.01  # share of unknown tokens from which on the rules of health get it


def held_out_tasks(settings: Settings) -> list[Task]:
    """The held-out tasks of a run: the keys of its panel file, or the first tasks of the evaluation environment."""
    chosen = settings.tables.eval
    if chosen.panel is not None:
        return panel_tasks(settings.eval_env, read_panel(Path(chosen.panel)))
    tasks = tasks_of(settings.eval_env)
    return [tasks[i] for i in range(min(chosen.tasks, len(tasks)))]


class Rollouts:
    """Batches of rollouts, demonstrations and evaluations of the policies as they were last loaded.

    Args:
        settings: of the run.
        tokenizers: of every policy, by its name; None: `speak` brings them before anything is played.

    Raises:
        ValueError: training and held-out tasks overlap, or there are none.
    """

    def __init__(self, settings: Settings, tokenizers: Mapping[str, Any] | None = None) -> None:
        tables = settings.tables
        self.settings, self.agents = settings, settings.agents
        self.main = next(iter(self.agents.values()))
        self.tasks, self.eval_tasks = tasks_of(settings.env), held_out_tasks(settings)
        check_disjoint(self.tasks, self.eval_tasks)
        self.loop = Loop()
        pools = {name: self._pool(agent.env, agent.limits) for name, agent in self.agents.items()}
        self.pools = [*pools.values(), self._pool(settings.eval_env, tables.limits)]
        admissible = settings.engine.config.actions != "free"
        self.crews = {
            where: Crew(self.agents, {**pools, self.main.name: own}, admissible=admissible, seed=tables.run.seed)
            for where, own in (("train", pools[self.main.name]), ("eval", self.pools[-1]))
        }
        self.chats: dict[str, Chat] = {}
        self.speak(tokenizers or {})
        make = settings.sampler.hooks.make
        self.sampler = make(settings.sampler.config, self.tasks, tables.run.seed)
        self.clone_sampler = make(settings.sampler.config, self.tasks, tables.run.seed + 1)
        self.on_episode: Callable[[EpisodeRecord], None] = lambda record: None  # called when an episode ends
        self.signals: list[str] = []  # names of the rewards' signals that some step has reported
        self.engines: dict[str, Any] = {}
        self.method = settings.rollout  # plays the groups of a batch
        self.provision = Provision(self.main.limits.concurrency)
        self._weights = Weights({})
        self._version = 0

    def speak(self, tokenizers: Mapping[str, Any]) -> None:
        """Use these tokenizers, by policy; ValueError if a chat template does not fit."""
        self.chats = {name: Chat(tokenizer) for name, tokenizer in tokenizers.items()}

    def load(self, weights: Weights, version: int) -> None:
        """Generate with these weights from now on.

        With references to the same models as before only the engines' caches are stale.
        """
        self._weights, self._version = weights, version
        for name, engine in self.engines.items():
            engine.load(weights.models[name], version)
        if not self.engines:
            self.engines = self._engines(self.settings.tables.sampling)

    def batch(self, iteration: int, on_episode: OnEpisode = None, *, pauses: bool = False) -> Collected:
        """A batch of training rollouts of the current policies.

        Args:
            iteration: part of the noise keys.
            on_episode: gets each episode when it ends.
            pauses: an evaluation or a checkpoint follows, so that no group may go on in the next batch.
        """
        settings, each = self.settings, self._each(on_episode)
        played = self._first(iteration, pauses, each) if settings.provision > 1 else self._all(iteration, each)
        collected = self.loop.run(played)
        if settings.reward:  # a later batch may be without one of them, such as that of a call nobody makes
            self.signals = sorted({*self.signals, *signal_names(collected.graph)})
        return replace(collected, graph=self._with_gold(collected))

    def player(self) -> Player:
        """Plays training episodes with the policies as they were last loaded."""
        return self.crews["train"].player(self._actors(self.engines), TRAIN)

    def stop_playing(self) -> None:
        """Cancel the groups that earlier batches have left in flight."""
        self.loop.run(self.provision.cancel())

    def unknown(self, graph: StepGraph) -> dict[str, float]:
        """Share of unknown tokens in what the model reads, `unknown_share` for the rules of health; empty below 1%."""
        unknown = self.chats[self.main.policy].tokenizer.unk_token_id
        if unknown is None or graph.tokens is None or len(self.chats) > 1:
            return {}
        read = graph.tokens.ids[~graph.tokens.sampled]
        share = float((read == unknown).mean()) if len(read) else 0.0
        return {"unknown_share": share} if share >= UNKNOWN else {}

    def demonstrations(self, step: int, on_episode: OnEpisode = None) -> tuple[StepGraph, dict[str, float]]:
        """A batch of fresh expert episodes, and what the rules of health should know of them.

        If only the best are cloned, the steps of the others have weight 0, and `won_share` and `cloned_share` are the
        shares of won and of cloned episodes.
        """
        context = self.settings.engine.config.max_context
        actors = {name: expert_actor(agent, self.chats[agent.policy], context) for name, agent in self.agents.items()}
        tasks = self.clone_sampler.draw(self.settings.tables.warmup.episodes)
        player = self.crews["train"].player(actors, CLONE)
        records = self.loop.run(play(player, tasks, iteration=step, on_episode=self._each(on_episode)))
        shares = _leave_the_best(records) if self.settings.tables.warmup.clone == "best" else {}
        graph = build_graph(records)
        return graph, {**self.unknown(graph), **self._unlisted(records), **shares}

    def _each(self, also: OnEpisode) -> Callable[[EpisodeRecord], None]:
        """What gets each episode when it ends: the run's own view of what it does now, and `also`."""

        def both(record: EpisodeRecord) -> None:
            self.on_episode(record)
            if also is not None:
                also(record)

        return both

    def _unlisted(self, records: Sequence[EpisodeRecord]) -> dict[str, float]:
        """`unlisted_share`: share of an expert's moves that are none of the listed actions; empty if it is 0."""
        steps = [step for record in records for chain in record.chains() for step in chain.steps if not step.rewrites]
        left = sum(bool(one.observation.actions) and one.action not in one.observation.actions for one in steps)
        free = self.settings.engine.config.actions == "free"
        return {} if free or not left else {"unlisted_share": left / len(steps)}

    def evaluation(self, mode: str, tasks: Sequence[Task], on_episode: OnEpisode = None) -> Report:
        """The current policies on held-out tasks, each once; `on_episode` gets each episode when it ends."""
        sampling, asked = self.settings.tables.sampling, self.settings.tables.eval.temperature
        temperature = 0.0 if mode == "greedy" else asked or sampling.temperature
        engines = self._engines(sampling.model_copy(update={"temperature": temperature}))
        player = self.crews["eval"].player(self._actors(engines), EVALUATE)
        described = {**engines[self.main.policy].describe(), "mode": mode}
        each = self._each(on_episode)
        ended = lambda record, _: each(record)  # noqa: E731
        return self.loop.run(evaluate(player, self.settings.eval_env, tasks, described, on_episode=ended))

    def try_expert(self) -> None:
        """One move of the demonstrator, so that a mistake in its name is told before anything is written."""
        self.loop.run(self._try_expert(expert_actor(self.main)))

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        samplers = {"sampler": self.sampler.state_dict(), "warmup_sampler": self.clone_sampler.state_dict()}
        return {**samplers, "signals": list(self.signals)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.sampler.load_state_dict(state["sampler"])
        self.clone_sampler.load_state_dict(state["warmup_sampler"])
        self.signals = list(state["signals"])

    def close(self) -> None:
        """Close the environments and the event loop."""
        for pool in self.pools:
            pool.close()
        for agent in self.agents.values():
            if agent.program is not None:
                agent.program.close()
        self.loop.close()

    async def _all(self, iteration: int, on_episode: OnEpisode) -> Collected:
        """Every group of a batch."""
        settings, batch = self.settings, self.settings.tables.batch
        return await collect(
            self.player(),
            self.sampler,
            settings.sampler,
            tasks=batch.tasks,
            copies=batch.copies,
            iteration=iteration,
            rollout=self.method,
            budget=Budget(batch.tokens, batch.calls),
            rewards=settings.reward,
            reported=self.signals,
            on_episode=on_episode,
        )

    async def _first(self, iteration: int, pauses: bool, on_episode: OnEpisode) -> Collected:
        """The groups of a batch that finish first; before a pause, with nothing left to be kept."""
        settings, batch = self.settings, self.settings.tables.batch
        drains = pauses and settings.keeps_leftover
        wanted = Wanted(
            tasks=batch.tasks,
            copies=batch.copies,
            begin=batch.tasks if drains else groups_to_begin(batch.tasks, settings.provision),
            iteration=iteration,
            version=self._version,
            staleness=settings.tables.run.staleness,
            keep=settings.keeps_leftover,
            rollout=self.method,
            rewards=settings.reward,
            reported=self.signals,
            on_episode=on_episode,
        )
        collected = await self.provision.batch(self.player(), self.sampler, settings.sampler, wanted)
        assert not (pauses and self.provision.flying), "a checkpoint cannot hold groups in flight"
        return collected

    async def _try_expert(self, expert: ExpertActor) -> None:
        handle = self.pools[0].acquire()
        broken = True
        try:
            first = await handle.reset(self.tasks[0])
            request = Request(session=0, token_ids=np.zeros(0, np.int64), messages=(), observation=first)
            await expert.move(request, handle)
            broken = False
        except EnvFault:  # a rollout tries again, and reports what persists
            pass
        finally:
            self.pools[0].release(handle, broken=broken)

    def _with_gold(self, collected: Collected) -> StepGraph:
        """The graph with the gold answer of each group, in the environment's format, where the environment knows it."""
        gold, graph = self.settings.env.hooks.gold, collected.graph
        if gold is None:
            return graph
        tasks = {record.task.key: record.task for record in collected.records}
        answers = [self.main.prompt.answer(gold(tasks[key])) for key in graph.names["group"]]
        return replace(graph, names={**graph.names, "gold": answers})

    def _pool(self, entry: Entry[EnvironmentFile], limits: Limits) -> Pool:
        where = self.settings.tables.pool
        return pool_within(entry, limits, where.kind, where.workers)

    def _engines(self, sampling: Sampling) -> dict[str, Any]:
        """An engine for each policy."""
        engine, engines = self.settings.engine, {}
        for name, model in self._weights.models.items():
            prompts = [agent.prompt for agent in self.agents.values() if agent.policy == name]
            serving = Serving(
                model=model,
                tokenizer=self.chats[name].tokenizer,
                sampling=stopping(sampling, *prompts),
                deterministic=self.settings.tables.run.deterministic,
                entropies=self.settings.rollout.hooks.entropy,
                version=self._version,
            )
            engines[name] = engine.hooks.make(engine.config, serving)
        return engines

    def _actors(self, engines: Mapping[str, Any]) -> dict[str, Actor]:
        """Who answers for each agent."""
        context = self.settings.engine.config.max_context
        return {
            name: PolicyActor(engines[agent.policy], self.chats[agent.policy], context, agent.policy)
            for name, agent in self.agents.items()
        }


def _leave_the_best(records: Sequence[EpisodeRecord]) -> dict[str, float]:
    """Give the steps of all episodes but the best weight 0; the shares of won and of cloned episodes.

    The best are those that were won; if none was, the tenth with the highest returns, ties included, if returns differ.
    """
    won = [record for record in records if record.success]
    returns = sorted((record.score for record in records), reverse=True)
    least = returns[len(returns) // BEST]
    best = won or [record for record in records if record.score >= least and record.score > returns[-1]]
    chosen = {id(record) for record in best}
    left = (chain for record in records if id(record) not in chosen for chain in record.chains())
    for step in (step for chain in left for step in chain.steps):
        step.generation = replace(step.generation, weight=0.0)
    return {"won_share": len(won) / len(records), "cloned_share": len(best) / len(records)}
