"""The rollouts of a run: agents, environments, engines and samplers, built from settings and tokenizers alone.

`Rollouts` is the half of a run that plays; `agentrl.run.Policies` is the half that learns. `Policies` gets step graphs
from `Rollouts`, and `Rollouts` gets `Weights` with their version from `Policies`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from agentrl.chat import Chat
from agentrl.config import Entry
from agentrl.credit import signal_names
from agentrl.engines import Launcher, Sampling, Serving, stopping
from agentrl.env import EnvironmentFile, Limits, Pool, pool_within, tasks_of
from agentrl.evaluate import Outcome, Report, evaluate
from agentrl.graph import StepGraph
from agentrl.model import Weights
from agentrl.rollout import (
    Actor,
    Allocator,
    Budget,
    Collected,
    Crew,
    Demonstrate,
    EpisodeRecord,
    ExpertActor,
    Follower,
    Player,
    PolicyActor,
    Provision,
    Replay,
    Teacher,
    Wanted,
    build_graph,
    collect,
    expert_actor,
    groups_to_begin,
    play,
    taught,
    with_demonstrations,
)
from agentrl.run.checks import check_disjoint, held_out_tasks
from agentrl.run.event_loop import Loop
from agentrl.run.speakers import EngineSpeaker
from agentrl.run.stages import CLONE, EVALUATE, GUIDE, TRAIN
from agentrl.run.vocabulary import look_alike
from agentrl.scoring import Disagreement, ScoreStage
from agentrl.settings import Settings
from agentrl.types import EnvFault, Request, Task

OnEpisode = Callable[[EpisodeRecord], None] | None
BEST = 10  # with warmup.clone = "best", about one episode in BEST is cloned if no episode of the batch succeeded
UNKNOWN = 0.01  # smallest share of look-alike observations (`look_alike`) that the rules of health get


class Evaluated(NamedTuple):
    """An evaluation, and the steps of its episodes in the order of the panel."""

    report: Report
    graph: StepGraph


class Rollouts:
    """Plays batches of rollouts, demonstrations and evaluations with the weights that were loaded last.

    Args:
        settings: the run's settings.
        tokenizers: name of each policy -> its tokenizer; None if the caller calls `speak` before anything is played.

    Raises:
        ValueError: training and held-out tasks overlap, there are no tasks, or the sampler cannot work with the other
            options.
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
            where: Crew(
                self.agents,
                {**pools, self.main.name: own},
                admissible=admissible,
                seed=tables.run.seed,
                timed=tables.log.durations,
            )
            for where, own in (("train", pools[self.main.name]), ("eval", self.pools[-1]))
        }
        self.chats: dict[str, Chat] = {}
        self.speak(tokenizers or {})
        make = settings.sampler.hooks.make
        self.sampler = make(settings.sampler.config, self.tasks, tables.run.seed)
        self._check_sampler()
        guide = settings.guide
        self.guide = None if guide is None else guide.hooks.make(guide.config, tables.run.seed)
        self.replay = None if settings.replay is None else Replay(settings.replay, tables.run.seed)
        self.clone_sampler = make(settings.sampler.config, self.tasks, tables.run.seed + 1)
        scoring = tables.scoring
        self.scores = ScoreStage(settings.score, scoring, self.main.name, settings.folder / "scores.jsonl")
        self.disagreement = None if scoring.second is None else Disagreement(scoring.second)
        self.on_episode: Callable[[EpisodeRecord], None] = lambda record: None  # called when an episode ends
        self.signals: list[str] = []  # names of all signals that steps have reported so far, for [reward]
        self.engines: dict[str, Any] = {}
        self.method = settings.rollout  # the rollout method, which plays the groups of a batch
        self.engine = settings.engine  # the entry that makes one engine per policy
        self.launcher: Launcher | None = None  # starts the engine's servers; if None, they start on this machine
        self.provision = Provision(self.main.limits.concurrency)
        self._weights = Weights({})
        self._version = 0

    def _check_sampler(self) -> None:
        """Raises ValueError if the sampler needs rollouts or columns at a time when this run does not have them."""
        settings, sampler = self.settings, self.sampler
        which = f"sampler.name={settings.sampler.name}"
        if settings.score and isinstance(sampler, Allocator):
            raise ValueError(
                f"{which} reads the first chains of a batch before [[score]] has scored them: choose another sampler, "
                "or drop [[score]]"
            )
        if settings.provision > 1 and isinstance(sampler, Allocator):
            raise ValueError(
                f"{which} starts further chains when all groups of a batch have been played, and rollout.provision "
                "above 1 does not wait for all groups: choose another sampler, or rollout.provision=1"
            )
        if settings.tables.run.staleness and isinstance(sampler, Follower):
            raise ValueError(
                f"{which} reads the columns that the trainer adds to a batch, and with run.staleness the next batch "
                "may begin before they are added: choose another sampler, or run.staleness=0"
            )

    def speak(self, tokenizers: Mapping[str, Any]) -> None:
        """Use these tokenizers (name of a policy -> tokenizer).

        Raises:
            ValueError: the chat template of a tokenizer does not fit.
        """
        self.chats = {name: Chat(tokenizer) for name, tokenizer in tokenizers.items()}

    def load(self, weights: Weights, version: int) -> None:
        """Generate with these weights from now on.

        If `weights` refers to the same models as before, the embedded engine only clears its cache. If `weights` names
        folders, an engine that reads folders gets them; for other engines, the folders are read into models first.

        Args:
            weights: weights of every policy, as models or folders.
            version: version of the weights.

        Raises:
            ValueError: an engine does not take the weights, or cannot be started.
        """
        if not self.engine.hooks.folders:
            weights = weights.opened({name: plan.model for name, plan in self.settings.policies.items()})
        self._weights, self._version = weights, version
        for name, engine in self.engines.items():
            engine.load(weights.models[name], version)
        if not self.engines:
            self.engines = self._engines(self.settings.tables.sampling)
        self.scores.speakers = {
            agent.name: EngineSpeaker(
                self.engines[agent.policy],
                self.chats[agent.policy],
                {"agent": agent.name, "version": version if self._changes(agent.policy) else 0},
            )
            for agent in self.agents.values()
        }

    def batch(self, iteration: int, on_episode: OnEpisode = None, *, pauses: bool = False) -> Collected:
        """A batch of training rollouts of the current policies.

        Args:
            iteration: number of the iteration, part of the noise keys.
            on_episode: called with each episode when the episode ends.
            pauses: whether an evaluation or a checkpoint follows, or this is the last batch. If so, no group may
                continue in a next batch.
        """
        settings, each = self.settings, self._each(on_episode)
        played = self._first(iteration, pauses, each) if settings.provision > 1 else self._all(iteration, each)
        collected = self.loop.run(played)
        if self.disagreement is not None:
            collected.metrics.update(self.disagreement.observe(collected.graph))
        if settings.reward:  # a later batch may lack a signal, for example because no step calls a tool
            self.signals = sorted({*self.signals, *signal_names(collected.graph)})
        graph, metrics = self._with_gold(collected), dict(collected.metrics)
        if self.replay is not None:
            fresh = graph
            graph = self.replay.join(fresh, iteration)
            self.replay.add(fresh, iteration)
            metrics |= self.replay.metrics(graph)
        graph, shown = self._with_demonstrations(graph, collected.records, iteration)
        read = taught(self.guide, collected.records, self.player())
        return replace(collected, graph=graph, metrics={**metrics, **shown}, taught=read)

    def free_caches(self) -> None:
        """Free the memory of the embedded engines' keys and values. The next answer takes memory again.

        An update makes all keys and values invalid, so during the update their memory can be used for other things.
        """
        _free(self.engines)

    def _with_demonstrations(
        self, graph: StepGraph, records: Sequence[EpisodeRecord], iteration: int
    ) -> tuple[StepGraph, dict[str, float]]:
        """The batch with the demonstrations that the guide adds to its groups, and metrics of these demonstrations."""
        tasks = {record.task.key: record.task for record in records}
        show = self._demonstrate(iteration)
        joined = with_demonstrations(self.guide, graph, tasks, show, self.settings.reward, self.signals)
        return self.loop.run(joined)

    def annotated(self, graph: StepGraph) -> None:
        """Show the annotated graph of a batch to the sampler, if the sampler is a `Follower`."""
        if isinstance(self.sampler, Follower):
            self.sampler.annotated(graph)

    def lesson(self) -> StepGraph | None:
        """The demonstrations that the guide wants the policies to imitate now; None if there are none."""
        return self.guide.lesson() if isinstance(self.guide, Teacher) else None

    def player(self) -> Player:
        """A player of training episodes, with the policies as they were last loaded."""
        return self.crews["train"].player(self._actors(self.engines), TRAIN)

    def stop_playing(self) -> None:
        """Cancel the groups that earlier batches have left in flight."""
        self.loop.run(self.provision.cancel())

    def unknown(self, graph: StepGraph) -> dict[str, float]:
        """`unknown_share` of a graph, which the rules of health read; see `look_alike`.

        Empty if the share is below `UNKNOWN`, if there are several policies, or if the tokenizer has no token for
        unknown words.
        """
        unknown = self.chats[self.main.policy].tokenizer.unk_token_id
        if unknown is None or len(self.chats) > 1:
            return {}
        share = look_alike(graph, unknown)
        return {"unknown_share": share} if share >= UNKNOWN else {}

    def demonstrations(self, step: int, on_episode: OnEpisode = None) -> tuple[StepGraph, dict[str, float]]:
        """The graph of newly played expert episodes, and metrics of these episodes for the rules of health.

        With `warmup.clone = "best"`, only the steps of the best episodes have a weight above 0. The metrics then
        include the shares of episodes that succeeded (`won_share`) and that are cloned (`cloned_share`).
        """
        context = self.settings.engine.config.max_context
        actors = {name: expert_actor(agent, self.chats[agent.policy], context) for name, agent in self.agents.items()}
        tasks = [draw.task for draw in self.clone_sampler.draw(self.settings.tables.warmup.episodes)]
        player = self.crews["train"].player(actors, CLONE)
        records = self.loop.run(play(player, tasks, iteration=step, on_episode=self._each(on_episode)))
        shares = _leave_the_best(records) if self.settings.tables.warmup.clone == "best" else {}
        graph = build_graph(records)
        return graph, {**self.unknown(graph), **self._unlisted(records), **shares}

    def _demonstrate(self, iteration: int) -> Demonstrate:
        """A function with which a guide lets the experts of all agents play tasks."""
        context = self.settings.engine.config.max_context
        actors = {name: expert_actor(agent, self.chats[agent.policy], context) for name, agent in self.agents.items()}

        async def demonstrate(tasks: Sequence[Task]) -> list[EpisodeRecord]:
            return await play(self.crews["train"].player(actors, GUIDE), tasks, iteration=iteration)

        return demonstrate

    def _each(self, also: OnEpisode) -> Callable[[EpisodeRecord], None]:
        """A function that passes each ended episode to `self.on_episode` and to `also`."""

        def both(record: EpisodeRecord) -> None:
            self.on_episode(record)
            if also is not None:
                also(record)

        return both

    def _unlisted(self, records: Sequence[EpisodeRecord]) -> dict[str, float]:
        """`unlisted_share`: share of the experts' moves that are not listed actions.

        Empty if this share is 0, or if `engine.actions` is `free`.
        """
        steps = [step for record in records for chain in record.chains() for step in chain.steps if not step.rewrites]
        left = sum(bool(one.observation.actions) and one.action not in one.observation.actions for one in steps)
        free = self.settings.engine.config.actions == "free"
        return {} if free or not left else {"unlisted_share": left / len(steps)}

    def evaluation(self, mode: str, tasks: Sequence[Task], on_episode: OnEpisode = None) -> Evaluated:
        """Play one episode of each of these held-out tasks with the current policies.

        Args:
            mode: `greedy` or `sampled`.
            tasks: the tasks.
            on_episode: called with each episode when the episode ends.
        """
        sampling, asked = self.settings.tables.sampling, self.settings.tables.eval.temperature
        temperature = 0.0 if mode == "greedy" else asked or sampling.temperature
        engines = self._engines(sampling.model_copy(update={"temperature": temperature}))
        player = self.crews["eval"].player(self._actors(engines), EVALUATE)
        described = {**engines[self.main.policy].describe(), "mode": mode}
        each, records = self._each(on_episode), list[EpisodeRecord]()

        def keep(record: EpisodeRecord, _: Outcome) -> None:
            records.append(record)
            each(record)

        report = self.loop.run(evaluate(player, self.settings.eval_env, tasks, described, on_episode=keep))
        _free(engines)  # otherwise the engines would keep their memory until Python's garbage collection
        return Evaluated(report, build_graph(sorted(records, key=lambda record: record.group)))

    def try_expert(self) -> None:
        """Ask the expert for one move, so that a wrong name of an expert is reported before files are written."""
        self.loop.run(self._try_expert(expert_actor(self.main)))

    def state_dict(self) -> dict[str, Any]:
        """The state of samplers, guide, replay, signals, scores and the second judge, for a checkpoint."""
        samplers = {"sampler": self.sampler.state_dict(), "warmup_sampler": self.clone_sampler.state_dict()}
        guide = {} if self.guide is None else {"guide": self.guide.state_dict()}
        replay = {} if self.replay is None else {"replay": self.replay.state_dict()}
        second = {} if self.disagreement is None else {"second_judge": self.disagreement.state_dict()}
        scores = {"signals": list(self.signals), "scores": self.scores.state_dict()}
        return {**samplers, **guide, **replay, **scores, **second}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state that `state_dict` returned."""
        self.sampler.load_state_dict(state["sampler"])
        self.clone_sampler.load_state_dict(state["warmup_sampler"])
        if self.guide is not None:
            self.guide.load_state_dict(state["guide"])
        if self.replay is not None:
            self.replay.load_state_dict(state["replay"])
        self.signals = list(state["signals"])
        self.scores.load_state_dict(state["scores"])
        if self.disagreement is not None:
            self.disagreement.load_state_dict(state["second_judge"])

    def close(self) -> None:
        """Close the environments and the event loop, and end the servers of engines."""
        for pool in self.pools:
            pool.close()
        if self.scores.entries:
            self.loop.run(self.scores.close())
        self._end(self.engines)
        for agent in self.agents.values():
            if agent.program is not None:
                agent.program.close()
        self.loop.close()

    async def _all(self, iteration: int, on_episode: OnEpisode) -> Collected:
        """A batch that waits for all its groups (`rollout.provision` is 1)."""
        settings, batch = self.settings, self.settings.tables.batch
        return await collect(
            self.player(),
            self.sampler,
            settings.sampler,
            tasks=batch.tasks,
            copies=batch.copies,
            iteration=iteration,
            rollout=self.method,
            budget=Budget(batch.tokens, batch.actions),
            rewards=settings.reward,
            reported=self.signals,
            scores=self.scores if settings.score else None,
            on_episode=on_episode,
            guide=self.guide,
            demonstrate=self._demonstrate(iteration),
        )

    async def _first(self, iteration: int, pauses: bool, on_episode: OnEpisode) -> Collected:
        """A batch of the groups that finish first (`rollout.provision` above 1).

        The other groups continue in the next batch or are cancelled, as `rollout.leftover` says. If they would continue
        and a pause follows, only as many groups begin as the batch takes, so that no group is left over.
        """
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
        except EnvFault:  # rollouts will try again, and will report the fault if it persists
            pass
        finally:
            self.pools[0].release(handle, broken=broken)

    def _with_gold(self, collected: Collected) -> StepGraph:
        """The graph with the gold answers of its groups in `names["gold"]`, if the environment has the hook `gold`."""
        gold, graph = self.settings.env.hooks.gold, collected.graph
        if gold is None:
            return graph
        tasks = {record.task.key: record.task for record in collected.records}
        answers = [self.main.prompt.answer(gold(tasks[key])) for key in graph.names["group"]]
        return replace(graph, names={**graph.names, "gold": answers})

    def _pool(self, entry: Entry[EnvironmentFile], limits: Limits) -> Pool:
        where = self.settings.tables.pool
        return pool_within(entry, limits, where.kind, where.workers)

    def _changes(self, policy: str) -> bool:
        """Do the steps of an agent train this policy?"""
        return any(agent.trained for agent in self.agents.values() if agent.policy == policy)

    def _engines(self, sampling: Sampling) -> dict[str, Any]:
        """An engine for each policy."""
        engine, engines = self.engine, dict[str, Any]()
        for name, model in self._weights.models.items():
            prompts = [agent.prompt for agent in self.agents.values() if agent.policy == name]
            serving = Serving(
                model=model,
                tokenizer=self.chats[name].tokenizer,
                sampling=stopping(sampling, *prompts),
                deterministic=self.settings.tables.run.deterministic,
                entropies=self.settings.rollout.hooks.entropy,
                nats=self.settings.tables.log.entropies,
                version=self._version,
                beside=self.engines.get(name),
                launcher=self.launcher,
                policy=name,
            )
            try:
                engines[name] = engine.hooks.make(engine.config, serving)
            except BaseException:
                if not self.engines:  # if there are training engines, they use the same servers, which must not end
                    self._end(engines)
                raise
        return engines

    def _end(self, engines: Mapping[str, Any]) -> None:
        """End the servers and other processes that the engines started."""
        end = self.engine.hooks.close
        if end is not None:
            for engine in engines.values():
                end(engine)

    def _actors(self, engines: Mapping[str, Any]) -> dict[str, Actor]:
        """The actor of each agent: the engine and the chat of the agent's policy."""
        context = self.settings.engine.config.max_context
        return {
            name: PolicyActor(engines[agent.policy], self.chats[agent.policy], context, agent.policy)
            for name, agent in self.agents.items()
        }


def _free(engines: Mapping[str, Any]) -> None:
    """Drop the keys and values of the embedded engines among these engines."""
    for engine in engines.values():
        if hasattr(engine, "free"):
            engine.free()


def _leave_the_best(records: Sequence[EpisodeRecord]) -> dict[str, float]:
    """Set the weight of all steps outside the best episodes to 0; return the shares of won and of cloned episodes.

    The best episodes are the episodes that succeeded. If no episode succeeded, they are the episodes with the highest
    returns: about a tenth of the batch, or more if returns are equal. In this case, episodes with the lowest return of
    the batch are not among the best.
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
