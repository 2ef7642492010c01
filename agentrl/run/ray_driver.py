"""Rollouts on the workers of a Ray cluster: each plays whole groups, with environments and an engine of its own.

The driver keeps what decides: sampler, filter, records, graph, updates, evaluations. A batch is one call per worker,
with all its groups, and the records come back at once. Noise is keyed by seed, iteration, group, copy and turn, so a
group is the same whichever worker plays it, but for the rounding of another batch.

When a worker dies in the middle of a batch, only its groups are played again: Ray restarts it (`ActorUnavailableError`
until then), or a new one takes its place (`ActorDiedError`). A restarted worker has the weights of its beginning. It
refuses groups that are meant for others, gets the current weights, and is asked again; the graph is the one of an
undisturbed run. `retried_shards` counts it; no episode becomes an `env_error`.

Limit: workers have embedded engines. The processes of the learners are `agentrl.run.ray_learners`.
"""

import asyncio
import itertools
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentrl.config import Entry
from agentrl.model import Weights
from agentrl.rollout import Collected, Draw, EpisodeRecord, Expansion
from agentrl.run.rollouts import OnEpisode, Rollouts
from agentrl.settings import Settings
from agentrl.settings.sections import ClusterSection
from agentrl.trainer import LearnerConfig

TRIES, BACK_OFF_S = 60, 0.5  # how often a worker is asked again, and the pause before
_USERS: list[str] = []  # addresses, one for each user of the connection
KNOCK_S = 5.0  # for a head node to take a connection; Ray itself tries for minutes


class OtherWeights(Exception):
    """A worker has weights of another version than its groups are meant for."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """The groups of a batch that one worker plays.

    Attributes:
        iteration: part of the noise keys.
        version: of the weights.
        copies: `batch.copies` of the recipe.
        draws: by the number of the group, ascending.
    """

    iteration: int
    version: int
    copies: int
    draws: Mapping[int, Draw]


@dataclass(frozen=True, kw_only=True, eq=False)
class PlayedShard:
    """The records of a shard: those that the rollout method keeps, and all that were played."""

    kept: Sequence[EpisodeRecord]
    played: Sequence[EpisodeRecord]


class Worker:
    """Plays shards in a process of its own; its methods run on one event loop.

    Args:
        tables: the resolved recipe, as `Settings.dump` gives it.
        tokenizers: of every policy.
        weights: models that are this worker's own.
        version: of the weights.
    """

    def __init__(
        self, tables: Mapping[str, Any], tokenizers: Mapping[str, Any], weights: Weights, version: int
    ) -> None:
        import torch

        settings = Settings({**tables, "cluster": {}}, stored=True)
        weights = weights.copy()  # what was sent lies at any address, and CPU kernels round by alignment
        torch.set_num_threads(max(1, settings.tables.run.threads))
        self._settings, self._weights, self._version = settings, weights, version
        self._rollouts = Rollouts(settings, tokenizers)
        self._rollouts.load(weights, version)

    async def pid(self) -> int:
        """Number of its process."""
        return os.getpid()

    async def load(self, state: Mapping[str, Mapping[str, Any]], version: int) -> None:
        """Generate with these weights from now on."""
        self._weights.take(state)
        self._version = version
        self._rollouts.load(self._weights, version)

    async def play(self, shard: Shard) -> PlayedShard:
        """Play the groups of a shard, all at once.

        Raises:
            OtherWeights: the shard is for another version of the weights.
        """
        if shard.version != self._version:
            raise OtherWeights(f"the worker has version {self._version}, its groups are for {shard.version}")
        method, player = self._settings.rollout, self._rollouts.player()
        first, last = min(shard.draws), max(shard.draws)
        batch = Expansion(player, [*shard.draws.values()], iteration=shard.iteration, first=first)
        assert last - first + 1 == len(shard.draws), "the groups of a shard have consecutive numbers"
        kept = await method.hooks.rollout(method.config, batch, shard.copies)
        for record in batch.played:
            record.points.clear()  # snapshots stay in this process
        return PlayedShard(kept=kept, played=batch.played)


class RayRollouts(Rollouts):
    """Rollouts whose training batches are played by workers; see the module.

    Raises:
        ValueError: Ray is not installed, cannot be reached, or has too few CPUs.
    """

    def __init__(self, settings: Settings, tokenizers: Mapping[str, Any] | None = None) -> None:
        self._ray, self.retried = connect(settings.tables.cluster, settings.tables.learner), 0
        self._workers: list[Any] = []
        self._state: Any = None  # of the weights of now, in Ray's store
        try:
            super().__init__(settings, tokenizers)
        except BaseException:
            release(self._ray)
            raise
        hooks = replace(settings.rollout.hooks, rollout=self._spread)
        self.method = Entry(settings.rollout.name, hooks, settings.rollout.config)

    def load(self, weights: Weights, version: int) -> None:
        """See `Rollouts`; the workers get the weights too."""
        super().load(weights, version)
        if not self._workers:
            tokenizers = {name: chat.tokenizer for name, chat in self.chats.items()}
            born = (self.settings.dump(), tokenizers, weights.copy(), version)
            self._born = [self._ray.put(value) for value in born]
            self._workers = [self._new() for _ in range(self.settings.tables.cluster.workers)]
        self._state = self._ray.put(weights.state())
        for worker in self._workers:
            worker.load.remote(self._state, version)

    def batch(self, iteration: int, on_episode: OnEpisode = None, *, pauses: bool = False) -> Collected:
        """See `Rollouts`."""
        before = self.retried
        collected = super().batch(iteration, on_episode, pauses=pauses)
        again = self.retried - before
        return replace(collected, metrics={**collected.metrics, "retried_shards": again}) if again else collected

    def close(self) -> None:
        """See `Rollouts`; the workers end too, and so does a cluster that was started here."""
        super().close()
        for worker in self._workers:
            self._ray.kill(worker)
        release(self._ray)

    def pids(self) -> list[int]:
        """Process numbers of the workers."""
        found: list[int] = self._ray.get([worker.pid.remote() for worker in self._workers])
        return found

    def _new(self) -> Any:
        """A worker with the weights that the run began with."""
        actor = self._ray.remote(Worker).options(num_cpus=1, max_restarts=-1, max_task_retries=0)
        return actor.remote(*self._born)

    async def _spread(self, config: Any, batch: Expansion, copies: int) -> list[EpisodeRecord]:
        """The rollout method of a batch: consecutive groups to each worker, in one call."""
        count = min(len(self._workers), len(batch.groups))
        cuts = [len(batch.groups) * i // count for i in range(count + 1)]
        shards = [
            Shard(
                iteration=batch.iteration,
                version=self._version,
                copies=copies,
                draws={group: batch.draws[group] for group in batch.groups[low:high]},
            )
            for low, high in itertools.pairwise(cuts)
        ]
        done = await asyncio.gather(*(self._ask(number, shard) for number, shard in enumerate(shards)))
        batch.played += [record for shard in done for record in shard.played]
        return [record for shard in done for record in shard.kept]

    async def _ask(self, number: int, shard: Shard) -> PlayedShard:
        """A worker's answer; it is asked again while it restarts, and replaced if it does not come back.

        Raises:
            ValueError: no worker answered in TRIES tries; or what the rollout itself raised.
        """
        from ray.exceptions import ActorDiedError, RayActorError, RayTaskError

        for _ in range(TRIES):
            try:
                done: PlayedShard = await self._workers[number].play.remote(shard)
                return done
            except ActorDiedError:
                self._workers[number] = self._new()
            except RayActorError:  # it is being restarted
                await asyncio.sleep(BACK_OFF_S)
            except RayTaskError as error:
                if not isinstance(error.cause, OtherWeights):
                    raise error.cause from None
                self._workers[number].load.remote(self._state, shard.version)
                continue
            self.retried += 1
        raise ValueError(
            f"worker {number} of the Ray cluster did not answer {TRIES} times: look at the cluster (ray status), and "
            "go on with --resume"
        )


def connect(cluster: ClusterSection, learner: LearnerConfig) -> Any:
    """Ray, connected to the cluster; `local` starts one with a CPU for each worker and each process of the learner.

    Each call is answered by one of `release`, the last of which leaves the cluster.

    Raises:
        ValueError: Ray is not installed, cannot be reached, or has too few CPUs.
    """
    address, ranks = cluster.address, learner.processes if learner.processes > 1 else 0
    cpus = cluster.workers + ranks
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        raise ValueError(
            f"cluster.address = {address!r} needs Ray: pip install 'agentrl-stepgraph[ray]', or leave cluster.address "
            "empty"
        ) from None
    if _USERS and ray.is_initialized():
        _USERS.append(address)
        return ray
    place = {"num_cpus": cpus, "include_dashboard": False} if address == "local" else {"address": address}
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {"env_vars": {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}}
    try:
        _knock(address)
        ray.init(**place, runtime_env=environment, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"cluster.address = {address!r}: no Ray cluster answers there ({first}); start one with `ray start "
            "--head`, or set cluster.address=local"
        ) from None
    there = int(ray.cluster_resources().get("CPU", 0))
    if there < cpus:
        ray.shutdown()
        besides = f" and learner.processes = {ranks}" if ranks else ""
        raise ValueError(
            f"cluster.workers = {cluster.workers}{besides} need {cpus} CPUs, and the Ray cluster has {there}: lower "
            "one of them"
        )
    _USERS[:] = [address]
    return ray


def release(ray: Any) -> None:
    """Leave the cluster if nobody else in this process uses it; a cluster that was started here ends."""
    if _USERS:
        _USERS.pop()
    if not _USERS:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raises OSError if nobody listens at HOST:PORT; other forms of address are left to Ray."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "/" not in address:
        socket.create_connection((host, int(port)), KNOCK_S).close()
