"""Rollouts on a Ray cluster: workers play whole groups, and engines generate for them.

This process (the run itself) keeps the sampler, the filter, records and graph. It also carries out the updates and
evaluations. Without workers this process plays too. With workers, a batch takes one call per worker: the call names all
groups of the worker, and returns all records of these groups. Noise is keyed by seed, iteration, group, copy and turn,
so a group does not depend on the worker that plays it. Only rounding may differ, because it depends on which requests
an engine computes together.

Without `cluster.engines` each worker generates with an engine of its own. With `cluster.engines`, the actors of
`agentrl.cluster.ray_engines` generate for all workers. If the engine has servers (vLLM), the servers of
`agentrl.cluster.ray_servers` generate in place of these actors.

When a worker dies in the middle of a batch, only its groups are played again. Ray restarts the worker; until then calls
raise `ActorUnavailableError`. If a call raises `ActorDiedError`, a new worker replaces the dead worker. A restarted or
new worker has the weights with which the workers were first started. It refuses groups that are meant for other
weights; this process then gives it the current weights and repeats the call. The graph is the same as in an undisturbed
run, and no episode ends with `env_error` because its worker died. The metric `retried_shards` counts the calls that
were made again because a worker was lost.

The processes of the learners are in `agentrl.cluster.ray_learners`.
"""

import asyncio
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from agentrl.cluster.ray_cluster import connect, first_line, release, room
from agentrl.cluster.ray_engines import START_S, EngineActor, EngineSetup, Team, TeamEngine
from agentrl.cluster.ray_servers import ClusterLauncher
from agentrl.config import Entry
from agentrl.engines import EngineFile, Serving
from agentrl.model import Mark, Weights
from agentrl.rollout import Collected, Draw, EpisodeRecord, Expansion
from agentrl.run import OnEpisode, Rollouts
from agentrl.settings import Settings

TRIES, BACK_OFF_S = 60, 0.5  # largest number of calls per shard; seconds before the next call of a restarting worker


class OtherWeights(Exception):
    """The groups of a worker are meant for other weights than the worker has."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """The groups of a batch that one worker plays.

    Attributes:
        iteration: number of the iteration, part of the noise keys.
        mark: mark of the weights with which the groups are played.
        copies: `batch.copies` of the recipe.
        draws: number of a group -> the group's draw; the numbers are consecutive and ascending.
    """

    iteration: int
    mark: Mark
    copies: int
    draws: Mapping[int, Draw]


@dataclass(frozen=True, kw_only=True, eq=False)
class PlayedShard:
    """What a worker returns for a shard.

    Attributes:
        kept: the records that the rollout method kept.
        played: all records of the shard.
        retried: number of requests that the worker sent again because an engine of the cluster was lost.
    """

    kept: Sequence[EpisodeRecord]
    played: Sequence[EpisodeRecord]
    retried: int = 0


class RolloutWorker:
    """Plays shards in a process of its own; its methods run on one event loop.

    Args:
        tables: the resolved recipe, as `Settings.dump` gives it.
        tokenizers: tokenizer of each policy.
        weights: the models with which this worker generates; None in place of each model if a team generates.
        mark: mark of the weights.
        team: the engines of the cluster; None if this worker generates itself.
    """

    def __init__(
        self,
        tables: Mapping[str, Any],
        tokenizers: Mapping[str, Any],
        weights: Weights,
        mark: Mark,
        team: Team | None = None,
    ) -> None:
        settings = Settings({**tables, "cluster": {}}, stored=True)
        if team is None:
            # Copied, because CPU kernels round by a tensor's alignment, which is arbitrary in received tensors.
            weights = weights.copy()
        torch.set_num_threads(max(1, settings.tables.run.threads))
        self._settings, self._weights, self._mark, self._team = settings, weights, mark, team
        self._rollouts = Rollouts(settings, tokenizers)
        if team is not None:
            self._rollouts.inference.entry = asking(settings.engine, team)
        self._rollouts.load(weights, mark.version)

    async def pid(self) -> int:
        """The id of the worker's process."""
        return os.getpid()

    async def load(self, state: Mapping[str, Mapping[str, Any]] | Sequence[Any], mark: Mark) -> None:
        """Generate with these weights from now on. With a team, `state` is a reference to them (`Team.state`)."""
        if mark.load <= self._mark.load:
            return
        if self._team is not None:
            assert isinstance(state, Sequence)
            self._team.take(state, mark)
        else:
            assert isinstance(state, Mapping)
            self._weights.take(state)
        self._mark = mark
        self._rollouts.load(self._weights, mark.version)

    async def play(self, shard: Shard) -> PlayedShard:
        """Play the groups of a shard, all at the same time.

        Raises:
            OtherWeights: the shard is for other weights.
        """
        if shard.mark != self._mark:
            raise OtherWeights(f"the worker has load {self._mark.load}, its groups are for {shard.mark.load}")
        method, player = self._settings.rollout, self._rollouts.player()
        first, last = min(shard.draws), max(shard.draws)
        batch = Expansion(player, [*shard.draws.values()], iteration=shard.iteration, first=first)
        assert last - first + 1 == len(shard.draws), "the groups of a shard have consecutive numbers"
        kept = await method.hooks.rollout(method.config, batch, shard.copies)
        for record in batch.played:
            record.points.clear()  # only this process can use the snapshots of its environments
        retried = 0
        if self._team is not None:
            retried, self._team.retried = self._team.retried, 0
        return PlayedShard(kept=kept, played=batch.played, retried=retried)


def asking(engine: Entry[EngineFile], team: Team) -> Entry[EngineFile]:
    """The engine of a recipe, changed so that the actors of a team generate its answers."""

    def make(config: Any, serving: Serving) -> TeamEngine:
        setup = EngineSetup(serving.policy, serving.sampling, serving.entropies, serving.nats)
        return TeamEngine(engine.name, team, setup)

    return Entry(engine.name, replace(engine.hooks, make=make, close=None, folders=True), engine.config)


class RayRollouts(Rollouts):
    """Rollouts that workers of a cluster play, or for which engines of a cluster generate; see the module's docstring.

    Raises:
        ValueError: Ray is not installed, cannot be started or reached, or has too few CPUs.
    """

    def __init__(self, settings: Settings, tokenizers: Mapping[str, Any] | None = None) -> None:
        self._ray = connect(settings.tables.cluster, settings.tables.learner)
        self.retried = self.retried_requests = 0
        self._workers: list[Any] = []
        self._team: Team | None = None
        self._state: Any = None  # reference to the current weights in Ray's object store
        self._mark = Mark(0, 0)
        try:
            super().__init__(settings, tokenizers)
        except BaseException:
            release(self._ray)
            raise
        if settings.tables.cluster.workers:
            hooks = replace(settings.rollout.hooks, rollout=self._spread)
            spread = Entry(settings.rollout.name, hooks, settings.rollout.config)
            self.batches.plan = replace(self.batches.plan, rollout=spread)

    def load(self, weights: Weights, version: int) -> None:
        """See `Rollouts`; workers and engines get the weights too.

        Raises:
            ValueError: the cluster has too few resources for the engines, or they do not start.
        """
        cluster = self.settings.tables.cluster
        self._mark = Mark(self._mark.load + 1, version)
        if self.settings.engine.hooks.cards is not None:  # the engine has servers; this process sends them requests
            if self.inference.launcher is None:
                self.inference.launcher = self._launched(cluster.engines, local=cluster.address == "local")
            super().load(weights, version)
            return
        weights = weights.opened({name: plan.model for name, plan in self.settings.policies.items()})
        self._state = self._ray.put(_on_cpu(weights.state()))
        if not self._workers and self._team is None:
            self._begin(weights)
        if self._team is not None:
            self._team.take([self._state], self._mark)
            self._team.push()
        for worker in self._workers:
            self._renew(worker)
        super().load(weights, version)

    def _begin(self, weights: Weights) -> None:
        """Start engines and workers with these weights."""
        cluster = self.settings.tables.cluster
        tokenizers = {name: chat.tokenizer for name, chat in self.inference.chats.items()}
        models = Weights({name: model.to("cpu") for name, model in weights.copy().models.items()})
        # Keep these references as long as this object: Ray reads them again when it restarts an actor.
        tables = self._ray.put(self.settings.dump()), self._ray.put(tokenizers)
        self._given: tuple[Any, ...] = (*tables, self._ray.put(models))
        if cluster.engines:
            self._team = self._new_team(cluster.engines)
            self.inference.entry = asking(self.settings.engine, self._team)
            nothing = self._ray.put(Weights(dict.fromkeys(models.models)))
            self._born: tuple[Any, ...] = (*tables, nothing, self._mark, self._team)
        else:
            self._born = (*self._given, self._mark)
        self._workers = [self._new() for _ in range(cluster.workers)]

    def _new_team(self, count: int) -> Team:
        """Start `count` engine actors, and wait until all of them are ready."""
        device = _device(self.settings)
        place = room(self._ray, self.settings, device)
        actors = []
        for number in range(count):
            where = {"num_gpus": place.cards, "scheduling_strategy": place.at(self._ray, place.ranks + number)}
            actor = self._ray.remote(EngineActor).options(num_cpus=1, max_restarts=-1, max_task_retries=0, **where)
            actors.append(actor.remote(*self._given, self._mark, device))
        try:
            self._ray.get([actor.pid.remote() for actor in actors], timeout=START_S)
        except self._ray.exceptions.RayError as error:
            raise ValueError(
                f"the engines of cluster.engines = {count} do not start ({first_line(error)}): look at the cluster "
                "(ray status)"
            ) from None
        return Team(self._ray, actors, self._mark, [self._state])

    def _launched(self, count: int, *, local: bool) -> ClusterLauncher:
        """The launcher that starts the engine's servers on the cluster."""
        place = room(self._ray, self.settings, _device(self.settings))
        return ClusterLauncher(self._ray, place, count, local=local)

    def batch(self, iteration: int, on_episode: OnEpisode = None, *, pauses: bool = False) -> Collected:
        """See `Rollouts`."""
        before = self.retried
        collected = super().batch(iteration, on_episode, pauses=pauses)
        if self._team is not None:
            self.retried_requests, self._team.retried = self.retried_requests + self._team.retried, 0
        again = {"retried_shards": self.retried - before, "retried_requests": self.retried_requests}
        self.retried_requests = 0
        metrics = {name: float(count) for name, count in again.items() if count}
        return replace(collected, metrics={**collected.metrics, **metrics}) if metrics else collected

    def close(self) -> None:
        """See `Rollouts`. The workers and engine actors end too, and so does a cluster that this process started."""
        super().close()
        for actor in [*self._workers, *(self._team.actors if self._team is not None else ())]:
            self._ray.kill(actor)
        release(self._ray)

    def pids(self) -> list[int]:
        """Process ids of the workers."""
        found: list[int] = self._ray.get([worker.pid.remote() for worker in self._workers])
        return found

    def _renew(self, worker: Any) -> None:
        """Give a worker the current weights or, with a team, a reference to them."""
        worker.load.remote(self._state if self._team is None else self._team.state, self._mark)

    def _new(self) -> Any:
        """A worker with the weights with which the workers were first started."""
        actor = self._ray.remote(RolloutWorker).options(num_cpus=1, max_restarts=-1, max_task_retries=0)
        return actor.remote(*self._born)

    async def _spread(self, config: Any, batch: Expansion, copies: int) -> list[EpisodeRecord]:
        """The rollout method of a batch: each worker plays a range of consecutive groups in one call."""
        count = min(len(self._workers), len(batch.groups))
        cuts = [len(batch.groups) * i // count for i in range(count + 1)]
        shards = [
            Shard(
                iteration=batch.iteration,
                mark=self._mark,
                copies=copies,
                draws={group: batch.draws[group] for group in batch.groups[low:high]},
            )
            for low, high in itertools.pairwise(cuts)
        ]
        done = await asyncio.gather(*(self._ask(number, shard) for number, shard in enumerate(shards)))
        batch.played += [record for shard in done for record in shard.played]
        self.retried_requests += sum(shard.retried for shard in done)
        return [record for shard in done for record in shard.kept]

    async def _ask(self, number: int, shard: Shard) -> PlayedShard:
        """The records of a worker's groups. If the worker restarts, the call is repeated; a dead worker is replaced.

        Raises:
            ValueError: neither the worker nor its replacements answered in TRIES tries.
            Exception: the error that the rollout method raised on the worker.
        """
        faults = self._ray.exceptions
        for _ in range(TRIES):
            try:
                done: PlayedShard = await self._workers[number].play.remote(shard)
                return done
            except faults.ActorDiedError:
                self._workers[number] = self._new()
            except faults.RayActorError:  # the worker is being restarted
                await asyncio.sleep(BACK_OFF_S)
            except faults.RayTaskError as error:
                if not isinstance(error.cause, OtherWeights):
                    raise error.cause from None
                self._renew(self._workers[number])
                continue
            self.retried += 1
        raise ValueError(
            f"worker {number} of the Ray cluster did not answer in {TRIES} tries: look at the cluster (ray status), "
            "then continue with --resume"
        )


def _on_cpu(state: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """The tensors on the CPU, so that any process of the cluster can read them, with or without a GPU."""
    return {policy: {name: tensor.cpu() for name, tensor in tensors.items()} for policy, tensors in state.items()}


def _device(settings: Settings) -> str:
    """The device on which the policies compute: `cuda` or `cpu`."""
    named = {plan.model.device for plan in settings.policies.values()}
    cuda = any(name.startswith("cuda") for name in named) or (named == {"auto"} and torch.cuda.is_available())
    return "cuda" if cuda else "cpu"
